"""What `btb` does ahead of requests: for bursts that are due, and for those that are under way."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import Chain, ClusterView, Compute, Copy, Due, Foresight, Keep
from policies.placing import Burst, Prices, bring, compute, holders, spread
from policies.waiting import Work

STAYS_S = 240.0
"""How long what was brought stays if its burst does not come: it is kept while that is due."""

RENEWED_S = 12.0
"""How long a prefix that is due is kept; renewed at each look, every five seconds."""

LEAST_REQUESTS = 2.0
"""Requests expected below which a prefix is not spread while its requests come."""

LOOK_AGAIN_S = 1.0
"""How long it is not looked again whether a prefix is to be spread."""

MAX_SHAPES = 1_000
"""Prefixes of which it is known what their requests are like; the longest unseen goes first."""


@dataclass(slots=True)
class _Shape:
    """What the requests below a boundary share, and what each has beside."""

    chain: Chain
    block_tokens: int
    own_tokens: float
    last_s: float
    looked_s: float = -1.0


class Anticipation:
    """Gets prefixes into HBM before they are asked for, and keeps them there meanwhile.

    With `compute`, what nobody holds is computed on a replica that is idle.
    """

    def __init__(self, work: Work, prices: Prices, horizon_s: float, *, compute: bool) -> None:
        self._work = work
        self._prices = prices
        self._horizon_s = horizon_s
        self._compute = compute
        self._shapes: OrderedDict[int, _Shape] = OrderedDict()

    def note(self, arrival: Arrival, forecasts: Sequence[Forecast]) -> None:
        """Learn from `arrival` what is shared below its boundary."""
        shared = forecasts[min(1, len(forecasts) - 1)].prefix
        own_tokens = float(arrival.input_tokens - shared.tokens)
        key = forecasts[0].prefix.key
        shape = self._shapes.get(key)
        if shape is None:
            chain = arrival.chain[: shared.blocks]
            self._shapes[key] = _Shape(chain, arrival.block_tokens, own_tokens, arrival.at_s)
            if len(self._shapes) > MAX_SHAPES:
                self._shapes.popitem(last=False)
            return
        if shape.chain[-1] != shared.key:
            shape.chain, shape.own_tokens = arrival.chain[: shared.blocks], own_tokens
        shape.own_tokens += 0.1 * (own_tokens - shape.own_tokens)
        shape.last_s = arrival.at_s
        self._shapes.move_to_end(key)

    def meanwhile(
        self,
        arrival: Arrival,
        forecasts: Sequence[Forecast],
        replica: int,
        cluster: ClusterView,
        now_s: float,
    ) -> list[Copy]:
        """Return copies of the prefix of `arrival`, on its way to `replica`, for its followers."""
        forecast = forecasts[-1]
        requests = forecast.mean(self._horizon_s)
        shape = self._shapes.get(forecasts[0].prefix.key)
        if requests < LEAST_REQUESTS or shape is None or now_s < shape.looked_s + LOOK_AGAIN_S:
            return []
        shape.looked_s = now_s
        chain = arrival.chain[: forecast.prefix.blocks]
        burst = Burst(
            chain=chain,
            block_tokens=arrival.block_tokens,
            own_tokens=max(1, round(shape.own_tokens)),
            chance=1.0,
            requests=requests,
            rate_rps=requests / self._horizon_s,
        )
        held = holders(chain, cluster)
        if replica not in held:
            held.append(replica)
        return spread(burst, held, self._work, cluster, self._prices, now_s)

    def ahead(self, due: Sequence[Due], cluster: ClusterView, now_s: float) -> Foresight:
        """Return what is done for bursts that may begin soon."""
        copies: list[Copy] = []
        keeps: list[Keep] = []
        computes: list[Compute] = []
        for one in due:
            burst = self._burst(one)
            if burst is None:
                continue
            held = holders(burst.chain, cluster)
            if not held:
                brought = bring(burst, cluster, self._prices, now_s)
                if brought is not None:
                    copies.append(brought)
                    held = [list(cluster.replicas).index(brought.target)]
                elif self._compute:
                    computes += compute(burst, cluster)
            if held:
                more = spread(burst, held, self._work, cluster, self._prices, now_s)
                copies += more
                names = [cluster.replicas[at] for at in held] + [copy.target for copy in more]
                keeps += [Keep(burst.chain, name, now_s + RENEWED_S) for name in names]
        return Foresight(tuple(copies), tuple(keeps), tuple(computes))

    def _burst(self, due: Due) -> Burst | None:
        chance = due.forecast.returns.get(self._horizon_s, 0.0)
        shape = self._shapes.get(due.forecast.prefix.key)
        if chance <= 0.0 or shape is None:
            return None
        requests = due.forecast.mean(self._horizon_s) / chance
        return Burst(
            chain=shape.chain,
            block_tokens=shape.block_tokens,
            own_tokens=max(1, round(shape.own_tokens)),
            chance=1.0 - (1.0 - chance) ** (STAYS_S / self._horizon_s),
            requests=requests,
            # It may begin at any time within the horizon, so half of it is left on average.
            rate_rps=2.0 * requests / self._horizon_s,
            begins_s=self._horizon_s / 2,
        )
