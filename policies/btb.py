"""Ours: the least expected delay, for this request and for those that the forecast sees coming."""

from collections.abc import Sequence
from math import inf
from random import Random
from statistics import fmean

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from policies.anticipation import LEAST_REQUESTS, Anticipation
from policies.base import ClusterView, Copy, Decision, Due, Feedback, Foresight, Keep
from policies.cost import Supply, Way, supply, ways
from policies.hot import HotPrefixes
from policies.order import QueueOrder, boundary_key
from policies.placing import Prices
from policies.ranking import first_by, ranked
from policies.waiting import RATE_TAU_S, Work

QUEUE_STALE_S = 0.01
"""How long the mean queue is taken to stay as it was."""


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
        Share of what is evicted, to hold other KV twice, that is taken to be computed again.
    horizon_s
        How far ahead forecasts are asked; one of `models.base.HORIZONS_S`.
    lead_s
        How far ahead of a burst that is due its prefix is brought into HBM; 0 for never.
    speculative_prefill
        Whether a prefix that is due, and that nobody holds, is computed on a replica that is idle.
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
        self._hot = HotPrefixes(horizon_s)
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
        rate_rps = self._rate_rps(arrival, forecasts)
        seen = [forecast.prefix.key for forecast in forecasts if forecast.seen > 1]
        shared = seen[-1] if seen else boundary_key(arrival)
        names, at = cluster.replicas, supply(arrival.chain, cluster)
        self._work.arrive(at.evicted)
        claims = self._order.claims(arrival, shared, names)
        found = ways(arrival, cluster, at, claims, crowded=self._work.crowded)
        behind = cluster.behind([way.priority for way in found])
        scores = self._scores(found, behind, arrival, rate_rps, at, cluster, now_s)
        first = self._first(scores, cluster)
        way = found[first]
        copies: tuple[Copy, ...] = ()
        if way.source >= 0:
            others = [s for w, s in zip(found, scores, strict=True) if w.source < 0]
            saved_s = min(others, default=inf) - scores[first]
            copies = (self._copy(way, arrival, rate_rps, saved_s, cluster, now_s),)
        self._work.add(way.work_s)
        if self.lead_s > 0.0 and rate_rps > 0.0:
            self._anticipation.note(arrival, forecasts)
            copies += tuple(self._anticipation.meanwhile(arrival, forecasts, first, cluster, now_s))
        self._order.note(arrival, shared, names[first])
        keeps = self._keeps(way, arrival, forecasts, rate_rps, names[first], now_s)
        return Decision(ranked(names, scores, first), copies, way.how, way.priority, keeps)

    def _first(self, scores: list[float], cluster: ClusterView) -> int:
        """Return the replica with the lowest score, of equal ones the one that has least.

        What is computed there draws others like it: if all are idle, two prefixes on one replica
        share it for as long as they are asked for.
        """
        best = min(scores)
        if scores.count(best) == 1:
            return scores.index(best)
        loads, free_bytes = cluster.loads(), cluster.free_bytes()
        keys = [
            (score, float(load), -free)
            for score, load, free in zip(scores, loads, free_bytes, strict=True)
        ]
        return first_by(keys, self._rng)

    def anticipate(self, due: Sequence[Due], cluster: ClusterView, now_s: float) -> Foresight:
        """Return what gets ahead of bursts that may begin within `lead_s`."""
        self._work.pass_time(now_s)
        return self._anticipation.ahead(due, cluster, now_s)

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        """Take in that a request waits no more."""
        self._order.forget(feedback.request_id)

    def _keeps(
        self,
        way: Way,
        arrival: Arrival,
        forecasts: Sequence[Forecast],
        rate_rps: float,
        name: str,
        now_s: float,
    ) -> tuple[Keep, ...]:
        """Keep what the request waits for until its turn comes, and what others will soon want."""
        keeps = []
        served_s = now_s + way.ttft_s
        if way.blocks and way.ttft_s > way.work_s:
            keeps.append(Keep(arrival.chain[: way.blocks], name, served_s))
        if rate_rps * self._horizon_s >= LEAST_REQUESTS:
            chain = arrival.chain[: forecasts[-1].prefix.blocks]
            keeps.append(Keep(chain, name, served_s + self._horizon_s))
        return tuple(keeps)

    def _rate_rps(self, arrival: Arrival, forecasts: Sequence[Forecast]) -> float:
        """Return how many requests a second are expected for the deepest prefix that is shared."""
        if not forecasts or self._horizon_s not in forecasts[-1].counts:
            return 0.0
        rate_rps = forecasts[-1].mean(self._horizon_s) / self._horizon_s
        if forecasts[-1].seen > 1:
            self._hot.note(arrival, forecasts[-1], rate_rps)
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
        prices_s = self._prices_s(found, arrival, at, cluster, work_price)
        sharing = 1.0 + rate_rps * self._horizon_s
        scores = []
        for way, overtaken, price_s in zip(found, behind, prices_s, strict=True):
            wait_s = min(own_wait_s, way.ttft_s)
            score = way.ttft_s + (work_price + overtaken) * way.work_s
            scores.append(score + rate_rps * wait_s * wait_s / 2 + price_s / sharing)
        if cluster.by_priority:
            # Who is expected overtakes this one: its compute is in nobody's way.
            return scores
        added_s = self._hot.added_s(found, arrival, cluster)
        return [score + more_s for score, more_s in zip(scores, added_s, strict=True)]

    def _prices_s(
        self,
        found: list[Way],
        arrival: Arrival,
        at: Supply,
        cluster: ClusterView,
        work_price: float,
    ) -> list[float]:
        """Return for each way what its copy costs, and KV that is then in the cluster twice.

        What that evicts may have to be computed again, at the price that compute has now.
        """
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
                work_s = cluster.prefill_s(twice * arrival.block_tokens, 0)
                prices_s[way.replica] += self._evict_price * (1.0 + work_price) * work_s
        return prices_s

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
