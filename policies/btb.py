"""Ours: the least expected delay, for this request and for those that the forecast sees coming."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from statistics import fmean

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from policies.anticipation import Anticipation
from policies.base import Chain, ClusterView, Copy, Decision, Due, Feedback, Foresight, Keep
from policies.cost import Supply, Way, supply, ways
from policies.order import QueueOrder, boundary_key
from policies.placing import Prices
from policies.ranking import first_by, ranked
from policies.waiting import RATE_TAU_S, Work

MAX_HOT = 1_000
"""Prefixes whose latest forecast is kept; the longest unseen is forgotten past this."""

WATCHED = 4
"""Prefixes, those expected most often, that a request's compute is weighed against."""

QUEUE_STALE_S = 0.01
"""How long the mean queue is taken to stay as it was."""


@dataclass(frozen=True, slots=True)
class _Hot:
    """A prefix that `rate_rps` more requests a second are expected for, as forecast at `at_s`."""

    chain: Chain
    tokens: int
    rate_rps: float
    at_s: float


class Btb:
    """Routes each request to where it costs least delay, and copies KV where that needs it.

    The delay of a way to serve a request is

        its own TTFT
        + its compute x (requests that it overtakes + requests expected while the replicas are busy)
        + the wait that is left for requests expected for its own prefix
        + what its compute adds to the wait of requests expected for other prefixes
        + its share of the price of a copy, and of KV that is then in the cluster twice

    A wait of w seconds is w - t for who comes in t seconds, so r arrivals a second wait r w² / 2 in
    all. A prefix that is being computed or received is waited for, or copied on from there as soon
    as it is there, where that costs less than computing it again. Its price is shared by all who
    are expected to use it. Each request gets a priority from `QueueOrder`; where replicas serve
    in order of arrival that changes nothing, and compute is kept out of the way of hot prefixes.

    Parameters
    ----------
    link_price
        Seconds of delay that one second of a replica's links is worth.
    evict_price
        Seconds of delay that a second of compute is worth whose KV is evicted to hold other KV
        twice.
    horizon_s
        How far ahead forecasts are asked; one of `models.base.HORIZONS_S`.
    """

    def __init__(
        self,
        rng: Random,
        *,
        link_price: float = 0.5,
        evict_price: float = 0.5,
        horizon_s: float = 15.0,
        lead_s: float = 15.0,
        speculative_prefill: bool = False,
    ) -> None:
        self._rng = rng
        self._link_price = link_price
        self._evict_price = evict_price
        self._horizon_s = horizon_s
        self.horizons_s = (horizon_s,)
        self._hot: OrderedDict[int, _Hot] = OrderedDict()
        self._order = QueueOrder()
        self._work = Work()
        self._queue_s = 0.0
        self._queue_at_s = -inf
        self.lead_s = lead_s
        self._anticipation = Anticipation(
            self._work, Prices(link_price, evict_price), horizon_s, compute=speculative_prefill
        )

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return where `arrival` goes, and what is copied for it."""
        self._work.pass_time(now_s)
        self._work.arrivals += 1.0
        rate_rps = self._remember(arrival, forecasts, now_s)
        shared = forecasts[-1].prefix.key if forecasts else boundary_key(arrival)
        names, at = cluster.replicas, supply(arrival.chain, cluster)
        found = ways(arrival, cluster, at, self._order.claims(arrival, shared, names))
        behind = cluster.behind([way.priority for way in found])
        scores = self._scores(found, behind, arrival, rate_rps, at, cluster, now_s)
        first = first_by(scores, self._rng)
        way = found[first]
        copies: tuple[Copy, ...] = ()
        if way.source >= 0:
            others = [s for w, s in zip(found, scores, strict=True) if w.source < 0]
            saved_s = min(others, default=inf) - scores[first]
            copies = (self._copy(way, arrival, rate_rps, saved_s, cluster, now_s),)
        self._work.add(way.work_s)
        if self.lead_s > 0.0 and forecasts:
            self._anticipation.note(arrival, forecasts)
            copies += tuple(self._anticipation.meanwhile(arrival, forecasts, first, cluster, now_s))
        self._order.note(arrival, shared, names[first])
        keeps = self._keeps(way, arrival, names[first], now_s)
        return Decision(ranked(names, scores, first), copies, way.how, way.priority, keeps)

    def anticipate(self, due: Sequence[Due], cluster: ClusterView, now_s: float) -> Foresight:
        """Return what gets ahead of bursts that may begin within `lead_s`."""
        self._work.pass_time(now_s)
        return self._anticipation.ahead(due, cluster, now_s)

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        """Take in that a request waits no more."""
        self._order.forget(feedback.request_id)

    def _keeps(self, way: Way, arrival: Arrival, name: str, now_s: float) -> tuple[Keep, ...]:
        """Keep what the request waits for until its turn comes."""
        if not way.blocks or way.ttft_s <= way.work_s:
            return ()
        until_s = now_s + way.ttft_s - way.work_s
        return (Keep(arrival.chain[: way.blocks], name, until_s),)

    def _remember(self, arrival: Arrival, forecasts: Sequence[Forecast], now_s: float) -> float:
        """Keep the forecast of the deepest prefix that is shared, and return its rate."""
        if not forecasts or self._horizon_s not in forecasts[-1].counts:
            return 0.0
        forecast = forecasts[-1]
        rate_rps = forecast.mean(self._horizon_s) / self._horizon_s
        if forecast.seen > 1:
            prefix = forecast.prefix
            chain = arrival.chain[: prefix.blocks]
            self._hot[prefix.key] = _Hot(chain, prefix.tokens, rate_rps, now_s)
            self._hot.move_to_end(prefix.key)
            if len(self._hot) > MAX_HOT:
                self._hot.popitem(last=False)
        return rate_rps

    def _scores(
        self,
        found: list[Way],
        behind: Sequence[int],
        arrival: Arrival,
        rate_rps: float,
        at: Supply,
        cluster: ClusterView,
        now_s: float,
    ) -> list[float]:
        if now_s >= self._queue_at_s + QUEUE_STALE_S:
            self._queue_at_s, self._queue_s = now_s, fmean(cluster.queue_s())
        work_price = self._work.arrivals / RATE_TAU_S / len(found) * self._queue_s
        own_wait_s = min((way.ttft_s - way.work_s for way in found if way.blocks), default=inf)
        prices_s = self._prices_s(found, arrival, at, cluster)
        sharing = 1.0 + rate_rps * self._horizon_s
        scores = []
        for way, overtaken, price_s in zip(found, behind, prices_s, strict=True):
            wait_s = min(own_wait_s, way.ttft_s)
            score = way.ttft_s + (work_price + overtaken) * way.work_s
            scores.append(score + rate_rps * wait_s * wait_s / 2 + price_s / sharing)
        if cluster.by_priority:
            # Who is expected overtakes this one: its compute is in nobody's way.
            return scores
        for hot in self._expected(arrival, max(way.work_s for way in found), now_s):
            waits_s = _waits(hot, arrival, cluster)
            for way in found:
                scores[way.replica] += hot.rate_rps * _added(waits_s, way)
        return scores

    def _prices_s(
        self, found: list[Way], arrival: Arrival, at: Supply, cluster: ClusterView
    ) -> list[float]:
        """Return for each way what its copy costs, and KV that is then in the cluster twice."""
        prices_s = [0.0] * len(found)
        most = max(at.stored)
        if not most and at.source < 0:
            return prices_s
        free_bytes, block_bytes = cluster.free_bytes(), cluster.block_bytes
        for way in found:
            if way.source >= 0:
                copy_s = cluster.copy_s(way.source, way.replica, way.blocks * block_bytes)
                prices_s[way.replica] = self._link_price * copy_s
            twice = most - at.stored[way.replica]
            if twice > 0 and free_bytes[way.replica] < twice * block_bytes:
                # It evicts what may be asked for again.
                work_s = cluster.prefill_s(twice * arrival.block_tokens, 0)
                prices_s[way.replica] += self._evict_price * work_s
        return prices_s

    def _expected(self, arrival: Arrival, work_s: float, now_s: float) -> list[_Hot]:
        """Return the other prefixes that are expected most, if `work_s` could be in their way."""
        in_the_way = [
            hot
            for hot in self._fresh(now_s)
            if hot.rate_rps * work_s > 0.1 and not _begins_with(arrival.chain, hot.chain)
        ]
        in_the_way.sort(key=lambda hot: -hot.rate_rps)
        return in_the_way[:WATCHED]

    def _fresh(self, now_s: float) -> Iterator[_Hot]:
        for hot in reversed(self._hot.values()):
            if now_s - hot.at_s > self._horizon_s:
                return
            yield hot

    def _copy(
        self,
        way: Way,
        arrival: Arrival,
        rate_rps: float,
        saved_s: float,
        cluster: ClusterView,
        now_s: float,
    ) -> Copy:
        source, target = cluster.replicas[way.source], cluster.replicas[way.replica]
        size_bytes = way.blocks * cluster.block_bytes
        expected = rate_rps * self._horizon_s
        return Copy(
            prefix=Prefix(
                arrival.chain[way.blocks - 1], way.blocks, way.blocks * arrival.block_tokens
            ),
            chain=arrival.chain[: way.blocks],
            source=source,
            target=target,
            size_bytes=size_bytes,
            deadline_s=now_s + way.ttft_s - way.work_s,
            value_s=saved_s,
            cost_s=cluster.copy_s(way.source, way.replica, size_bytes),
            reason=f"a request waits for it; {expected:.0f} more expected in "
            f"{self._horizon_s:g} s; saves {saved_s:.1f} s of delay",
        )


def _begins_with(chain: Chain, other: Chain) -> bool:
    return len(chain) >= len(other) and chain[len(other) - 1] == other[-1]


def _waits(hot: _Hot, arrival: Arrival, cluster: ClusterView) -> list[float]:
    """Return how long the next request for `hot` would wait on each replica for its prefix."""
    following = Arrival(
        at_s=arrival.at_s,
        chain=hot.chain,
        block_tokens=arrival.block_tokens,
        input_tokens=hot.tokens + arrival.block_tokens,
    )
    return [
        way.ttft_s - way.work_s if way.blocks else way.ttft_s for way in ways(following, cluster)
    ]


def _added(waits_s: list[float], way: Way) -> float:
    """Return the seconds that `way` adds to the waits of one arrival a second, summed.

    The next request for a prefix goes where its wait is shortest; only if that is where `way`
    computes does it have to wait longer, or go elsewhere.
    """
    before_s = min(waits_s)
    if waits_s[way.replica] > before_s:
        return 0.0
    after_s = max(before_s, way.ttft_s)
    for replica, wait_s in enumerate(waits_s):
        if replica != way.replica and wait_s < after_s:
            after_s = wait_s
    return (after_s * after_s - before_s * before_s) / 2
