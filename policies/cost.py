"""When a request would have its first token on each replica, by the best way to get its KV there.

The formulas are those of `design.md` section 6: queue ahead, then what must be waited for, then
the prefill of the rest. Waiting for KV and waiting in the queue go on side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple

from forecasting.arrival import Arrival
from policies.base import Chain, ClusterView
from policies.order import Claims
from policies.waiting import CHUNK_TOKENS

FAR_S = 60.0
"""Nobody can say what a cache will hold when a request starts that waits longer than this, in
seconds; nothing is copied for it."""

MOST_TARGETS = 8
"""Replicas, those with the shortest queues, for which a copy is weighed."""

Offer = tuple[int, float, int, str, float]
"""Blocks, seconds until they are there and it is this request's turn, source, how, priority."""


class Way(NamedTuple):
    """One way for a request to get its first token on one replica.

    `work_s` is the compute it takes there; `ttft_s` the time until its first token; `blocks` what
    need not be computed. `source` is the replica that the KV comes from, -1 if it is not copied.
    """

    replica: int
    ttft_s: float
    work_s: float
    blocks: int
    source: int
    how: str
    priority: float = 0.0


@dataclass(frozen=True, slots=True)
class Supply:
    """Where the KV of a prompt is, or will be: its leading blocks on each replica.

    `here` is in HBM, `stored` counts RAM and disk too, `pending` is under way, and in how many
    seconds it is there. The best source for a copy has or will have `source_blocks`, in `source_s`;
    what it has below its HBM comes up in `below_s`. It is -1 where nobody has anything.
    """

    here: Sequence[int]
    stored: Sequence[int]
    pending: Sequence[tuple[int, float]]
    source: int
    source_blocks: int
    source_s: float
    below_s: float

    @property
    def evicted(self) -> bool:
        """Whether a replica has more of it in its RAM and disk than in HBM."""
        return any(stored > here for stored, here in zip(self.stored, self.here, strict=True))


def supply(chain: Chain, cluster: ClusterView) -> Supply:
    """Return where the KV of `chain` is."""
    here, stored = cluster.resident_blocks(chain), cluster.stored_blocks(chain)
    pending = cluster.pending(chain)
    source, blocks, wait_s, below_s = -1, 0, 0.0, 0.0
    for replica, held in enumerate(stored):
        coming, ready_s = pending[replica]
        if coming <= held:
            coming, ready_s = held, 0.0
        if coming > blocks or (coming == blocks and ready_s < wait_s):
            source, blocks, wait_s = replica, coming, ready_s
    if source >= 0 and here[source] < blocks == stored[source]:
        below_s = cluster.load_s(source, chain)
    return Supply(here, stored, pending, source, blocks, wait_s, below_s)


def ways(
    arrival: Arrival,
    cluster: ClusterView,
    at: Supply | None = None,
    claims: Claims | None = None,
    *,
    crowded: bool = False,
) -> list[Way]:
    """Return the best way for each replica, in their order, served by priority if `claims` say how.

    Best is the lowest `ttft_s + work_s`: compute that one request takes is time that others wait,
    so what can be had without computing is worth as much wait. A request that fetches its KV needs
    little compute, so it has a better priority than one that computes; but not where that KV was
    evicted before: room is short there, and who overtakes would have others evicted in turn. Where
    HBM is `crowded` nothing is copied for which something has to go that others may be waiting for.
    """
    at = at or supply(arrival.chain, cluster)
    return _Weighing(arrival, cluster, at, claims, crowded=crowded).best()


class _Weighing:
    """Weighs, on each replica, computing against waiting for what is under way and against moving.

    What is under way is waited for with the priority of one that computes: it may be this very
    request that has to, when its turn comes.
    """

    def __init__(
        self,
        arrival: Arrival,
        cluster: ClusterView,
        at: Supply,
        claims: Claims | None,
        *,
        crowded: bool,
    ) -> None:
        self._arrival = arrival
        self._cluster = cluster
        self._at = at
        self._works_s: dict[int, float] = {}
        self._alone_s = [self._work_s(blocks) for blocks in at.here]
        self._own: Sequence[float] = [0.0] * len(at.here)
        self._fetching: Sequence[float] = self._own
        if claims is None:
            self._wait_s = self._fetch_wait_s = cluster.queue_s()
        else:
            self._own = claims.priorities(self._alone_s)
            self._wait_s = self._fetch_wait_s = cluster.queue_s(self._own)
            if at.source >= 0:
                most = (max(blocks, at.source_blocks) for blocks in at.stored)
                self._fetching = claims.priorities([self._work_s(blocks) for blocks in most])
                self._fetch_wait_s = cluster.queue_s(self._fetching)
        self._targets = set(
            nsmallest(MOST_TARGETS, range(len(at.here)), key=self._fetch_wait_s.__getitem__)
        )
        if crowded and at.source >= 0:
            free_bytes, block_bytes = cluster.free_bytes(), cluster.block_bytes
            queue_s = cluster.queue_s()
            self._targets = {
                one
                for one in self._targets
                if not queue_s[one]
                or free_bytes[one] >= (at.source_blocks - at.here[one]) * block_bytes
            }

    def best(self) -> list[Way]:
        """Return the best way for each replica."""
        return [self._best(replica) for replica in range(len(self._own))]

    def _best(self, replica: int) -> Way:
        at = self._at
        here, wait_s, own = at.here[replica], self._wait_s[replica], self._own[replica]
        work_s = self._alone_s[replica]
        how = "held here" if here else "computed here"
        best = Way(replica, wait_s + work_s, work_s, here, -1, how, own)
        if at.source_blocks <= here:
            return best
        for blocks, ready_s, source, how, priority in self._offers(replica, here, wait_s):
            work_s = self._work_s(blocks)
            if ready_s + 2 * work_s < best.ttft_s + best.work_s:
                best = Way(replica, ready_s + work_s, work_s, blocks, source, how, priority)
        return best

    def _offers(self, replica: int, here: int, wait_s: float) -> Iterator[Offer]:
        at = self._at
        coming, coming_s = at.pending[replica]
        if coming > here:
            # If this one overtakes who would compute it, it computes it for both.
            coming_s = min(coming_s, wait_s + self._alone_s[replica] - self._work_s(coming))
            yield coming, max(wait_s, coming_s), -1, "under way here", self._own[replica]
        fetch_wait_s, fetching = self._fetch_wait_s[replica], self._fetching[replica]
        if at.stored[replica] > here:
            fetch_wait_s, fetching = wait_s, self._own[replica]
            load_s = self._cluster.load_s(replica, self._arrival.chain)
            yield at.stored[replica], max(wait_s, load_s), -1, "in its RAM", fetching
        if replica == at.source or replica not in self._targets:
            return
        if max(fetch_wait_s, at.source_s) <= FAR_S:
            copied_s = self._copied_s(replica)
            if at.source_blocks > coming or copied_s < coming_s:
                ready_s = max(fetch_wait_s, copied_s)
                yield at.source_blocks, ready_s, at.source, "copied from a peer", fetching

    def _copied_s(self, replica: int) -> float:
        """Return when a copy would be there: in pieces, so its last chunk comes last."""
        at, cluster = self._at, self._cluster
        size_bytes = (at.source_blocks - at.here[replica]) * cluster.block_bytes
        copy_s = max(at.below_s, cluster.copy_s(at.source, replica, size_bytes))
        if not at.source_s:
            return copy_s
        chunk_blocks = max(1, CHUNK_TOKENS // self._arrival.block_tokens)
        chunk_bytes = min(size_bytes, chunk_blocks * cluster.block_bytes)
        return max(copy_s, at.source_s + cluster.copy_s(at.source, replica, chunk_bytes))

    def _work_s(self, blocks: int) -> float:
        work_s = self._works_s.get(blocks)
        if work_s is None:
            arrival = self._arrival
            hit_tokens = min(blocks * arrival.block_tokens, arrival.input_tokens - 1)
            work_s = self._cluster.prefill_s(arrival.input_tokens - hit_tokens, hit_tokens)
            self._works_s[blocks] = work_s
        return work_s
