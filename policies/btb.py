"""Ours: the least expected delay, for this request and for those that the forecast sees coming."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from policies.base import Chain, ClusterView, Copy, Decision, Feedback
from policies.cost import Way, ways
from policies.ranking import first_by, ranked

MAX_HOT = 256
"""Prefixes whose latest forecast is kept."""


@dataclass(frozen=True, slots=True)
class _Hot:
    """A prefix that more requests are expected for: `rate_s` a second, as forecast at `at_s`."""

    chain: Chain
    tokens: int
    rate_s: float
    at_s: float


class Btb:
    """Routes each request to where it costs least delay, and copies KV where that needs it.

    The delay is the request's own TTFT, plus what its compute adds to the wait of requests that
    the forecast expects for other prefixes, less what it takes from the wait of those expected for
    its own. A prefix that is being computed or received is waited for, or copied on from there,
    where that is better than computing it again.

    Parameters
    ----------
    link_price
        Seconds of delay that one second of a replica's links is worth.
    horizon_s
        How far ahead forecasts are asked; one of `models.base.HORIZONS_S`.
    watched
        How many other prefixes, those expected most often, a request's compute is weighed against.
    """

    wants_forecast = True

    def __init__(
        self,
        rng: Random,
        *,
        link_price: float = 0.5,
        horizon_s: float = 15.0,
        watched: int = 4,
    ) -> None:
        self._rng = rng
        self._link_price = link_price
        self._horizon_s = horizon_s
        self._watched = watched
        self._hot: OrderedDict[int, _Hot] = OrderedDict()

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return where `arrival` goes, and what is copied for it."""
        own_rate = self._remember(arrival, forecasts, now_s)
        found = ways(arrival, cluster)
        scores = self._scores(found, arrival, own_rate, cluster, now_s)
        first = first_by(scores, self._rng)
        way = found[first]
        copies = (self._fetch(way, arrival, cluster),) if way.source >= 0 else ()
        return Decision(ranked(cluster.replicas, scores, first), copies, way.how)

    def _remember(self, arrival: Arrival, forecasts: Sequence[Forecast], now_s: float) -> float:
        rate = 0.0
        for forecast in forecasts:
            rate = forecast.mean(self._horizon_s) / self._horizon_s
        if forecasts and forecasts[-1].seen > 1:
            prefix = forecasts[-1].prefix
            chain = arrival.chain[: prefix.blocks]
            self._hot[prefix.key] = _Hot(chain, prefix.tokens, rate, now_s)
            self._hot.move_to_end(prefix.key)
            if len(self._hot) > MAX_HOT:
                self._hot.popitem(last=False)
        return rate

    def _scores(
        self,
        found: list[Way],
        arrival: Arrival,
        own_rate: float,
        cluster: ClusterView,
        now_s: float,
    ) -> list[float]:
        scores = []
        others = self._others(arrival, cluster, now_s, max(way.work_s for way in found))
        ready_s = min((way.ttft_s - way.work_s for way in found if way.blocks), default=1e9)
        for way in found:
            score = way.ttft_s
            if way.source >= 0:
                size = way.blocks * cluster.block_bytes
                score += self._link_price * cluster.copy_s(way.source, way.replica, size)
            own_s = min(ready_s, way.ttft_s)
            score += own_rate * own_s * own_s / 2
            for rate, waits_s in others:
                score += rate * _added(waits_s, way)
            scores.append(score)
        return scores

    def _others(
        self, arrival: Arrival, cluster: ClusterView, now_s: float, work_s: float
    ) -> list[tuple[float, list[float]]]:
        """Return rate and wait on each replica of the other prefixes that are expected most."""
        fresh = [
            hot
            for hot in self._hot.values()
            if now_s - hot.at_s < self._horizon_s
            and hot.rate_s * work_s > 0.1
            and hot.chain[-1] not in arrival.chain
        ]
        fresh.sort(key=lambda hot: -hot.rate_s)
        return [(hot.rate_s, _waits(hot, arrival, cluster)) for hot in fresh[: self._watched]]

    def _fetch(self, way: Way, arrival: Arrival, cluster: ClusterView) -> Copy:
        chain = arrival.chain[: way.blocks]
        size = way.blocks * cluster.block_bytes
        return Copy(
            prefix=Prefix(chain[-1], way.blocks, way.blocks * arrival.block_tokens),
            chain=chain,
            source=cluster.replicas[way.source],
            target=cluster.replicas[way.replica],
            size_bytes=size,
            deadline_s=0.0,
            value_s=0.0,
            cost_s=0.0,
            reason="a request waits for it",
        )

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        """Do nothing yet."""


def _waits(hot: _Hot, arrival: Arrival, cluster: ClusterView) -> list[float]:
    like = Arrival(
        at_s=arrival.at_s,
        chain=hot.chain,
        block_tokens=arrival.block_tokens,
        input_tokens=hot.tokens + arrival.block_tokens,
    )
    return [way.ttft_s - way.work_s if way.blocks else way.ttft_s for way in ways(like, cluster)]


def _added(waits_s: list[float], way: Way) -> float:
    """Return the seconds that `way` adds to the waits of one arrival a second, summed.

    A wait of w seconds now is w - t for one that comes in t seconds: w² / 2 in all.
    """
    before_s = min(waits_s)
    after_s = min(
        max(wait_s, way.ttft_s) if replica == way.replica else wait_s
        for replica, wait_s in enumerate(waits_s)
    )
    return (after_s * after_s - before_s * before_s) / 2
