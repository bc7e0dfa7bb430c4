"""When a request would have its first token on each replica, by the best way to get its KV there.

The formulas are those of `design.md` section 6: queue ahead, then what must be waited for, then
the prefill of the rest. Waiting for KV and waiting in the queue go on side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from forecasting.arrival import Arrival
from policies.base import ClusterView

FAR_S = 60.0
"""Nobody can say what a cache will hold when a request starts that waits longer than this, in
seconds; nothing is copied for it."""


@dataclass(frozen=True, slots=True)
class Way:
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


def ways(
    arrival: Arrival, cluster: ClusterView, priorities: Sequence[float] | None = None
) -> list[Way]:
    """Return the best way for each replica, in their order, served by `priorities` if given.

    Best is the lowest `ttft_s + work_s`: compute that one request takes is time that others wait,
    so what can be had without computing is worth as much wait.
    """
    chain = arrival.chain
    queue_s = cluster.queue_s(priorities)
    here = cluster.resident_blocks(chain)
    stored = cluster.stored_blocks(chain)
    pending = cluster.pending(chain)
    source, source_blocks, source_s = _best_source(stored, pending)
    below_s = 0.0
    if source >= 0 and here[source] < source_blocks == stored[source]:
        below_s = cluster.load_s(source, chain)  # a disk may be slower than the NICs
    found = []
    for replica, wait_s in enumerate(queue_s):
        best = _way(arrival, cluster, replica, wait_s, here[replica], -1, "computed here")
        offers = []
        if pending[replica][0] > here[replica]:
            ready_s = max(wait_s, pending[replica][1])
            offers.append((pending[replica][0], ready_s, -1, "under way here"))
        if stored[replica] > here[replica]:
            ready_s = max(wait_s, cluster.load_s(replica, chain))
            offers.append((stored[replica], ready_s, -1, "in its RAM"))
        known = max(here[replica], pending[replica][0])
        near = max(wait_s, source_s) <= FAR_S
        if near and source not in (-1, replica) and source_blocks > known:
            size = (source_blocks - here[replica]) * cluster.block_bytes
            copy_s = max(below_s, cluster.copy_s(source, replica, size))
            ready_s = max(wait_s, source_s + copy_s)
            offers.append((source_blocks, ready_s, source, "copied from a peer"))
        for blocks, ready_s, origin, how in offers:
            way = _way(arrival, cluster, replica, ready_s, blocks, origin, how)
            if way.ttft_s + way.work_s < best.ttft_s + best.work_s:
                best = way
        found.append(best)
    return found


def _way(
    arrival: Arrival,
    cluster: ClusterView,
    replica: int,
    ready_s: float,
    blocks: int,
    source: int,
    how: str,
) -> Way:
    hit_tokens = min(blocks * arrival.block_tokens, arrival.input_tokens - 1)
    work_s = cluster.prefill_s(arrival.input_tokens - hit_tokens, hit_tokens)
    if blocks and how == "computed here":
        how = "held here"
    return Way(replica, ready_s + work_s, work_s, blocks, source, how)


def _best_source(
    stored: Sequence[int], pending: Sequence[tuple[int, float]]
) -> tuple[int, int, float]:
    """Return the replica that holds or will hold most of a prompt, how much, and in how long."""
    keys = []
    for replica, blocks in enumerate(stored):
        coming, wait_s = pending[replica]
        keys.append((-coming, wait_s, replica) if coming > blocks else (-blocks, 0.0, replica))
    blocks, wait_s, replica = min(keys)
    return (replica, -blocks, wait_s) if blocks else (-1, 0, 0.0)
