"""KV on its way into replicas: from a peer, or from the replica's own RAM or disk."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from btb.simulation.fabric import Fabric, Flow
from btb.simulation.replica import Job
from btb.simulation.runs import Path
from btb.simulation.setups import Setup
from btb.simulation.tiers import ReplicaCache
from policies.base import Copy


@dataclass(slots=True, eq=False)
class Moving:
    """A transfer: it waits for its source to have more, and moves what that has, until all is over.

    `copy` is the order for it, None where the engine loads by itself. `ready_s` is when the source
    is expected to have all of it. `flow` is what is on its way, up to block `upto`; None while it
    waits. `waiting` are the jobs at the target that wait for all of it. `size_bytes` counts what
    was put on a link, from `started_s` on.
    """

    number: int
    ready_s: float
    source: int
    target: int
    tier: str
    path: Path
    blocks: int
    copy: Copy | None
    flow: Flow | None = None
    upto: int = 0
    size_bytes: float = 0.0
    started_s: float = inf
    ended_s: float = inf
    used: bool = False
    waiting: list[Job] = field(default_factory=list)


class Transfers:
    """Carries KV over the links of a cluster, and makes it usable when it has come.

    What a source computes or receives is sent on in pieces, as they get there.

    A replica has four links, each shared fairly: NICs out, NICs in, host link, disk. The NICs reach
    a peer's RAM without its host link, which joins RAM and HBM.
    """

    def __init__(
        self,
        setup: Setup,
        caches: Sequence[ReplicaCache],
        block_bytes: int,
        latency_s: float,
        chunk_bytes: float,
    ) -> None:
        count = len(caches)
        self._caches = caches
        self._count = count
        self._block_bytes = block_bytes
        self._latency_s = latency_s
        self._chunk_bytes = chunk_bytes
        self._fabric = Fabric(
            [setup.rdma_bytes_s] * (2 * count)
            + [setup.host_bytes_s] * count
            + [setup.disk_bytes_s] * count
        )
        self.all: list[Moving] = []
        self._inbound: list[list[Moving]] = [[] for _ in caches]
        self._planned: list[list[Moving]] = [[] for _ in caches]
        self._landing: list[tuple[float, int]] = []
        self._flows_end_s = inf

    def seconds(self, source: int, target: int, tier: str, size_bytes: float) -> float:
        """Return how long a transfer would take that started now, as the links are."""
        rate = self._fabric.offered_bytes_s(self._links(source, target, tier))
        return self._latency_s + size_bytes / rate

    def blocks_s(self, replica: int, tier: str, blocks: int) -> float:
        """Return how long a replica would take to load `blocks` from a tier of its own."""
        return self.seconds(replica, replica, tier, blocks * self._block_bytes)

    def plan(
        self,
        source: int,
        target: int,
        tier: str,
        path: Path,
        blocks: int,
        ready_s: float,
        copy: Copy | None = None,
    ) -> Moving:
        """Note that the first `blocks` of `path` are to be moved; all are there at `ready_s`.

        What of it is at the target already is not moved again.
        """
        moving = Moving(len(self.all), ready_s, source, target, tier, path, blocks, copy)
        self.all.append(moving)
        self._inbound[target].append(moving)
        if copy is not None:
            self._planned[source].append(moving)
        return moving

    def begin(self, moving: Moving, upto: int, now_s: float) -> bool:
        """Move the first `upto` blocks of it; False, and it is over, if there is no room for them.

        Their place at the target, and the blocks at the source, are pinned until they have landed.
        """
        target = self._caches[moving.target]
        size_bytes = float((upto - target.matched(moving.path)) * self._block_bytes)
        if not target.reserve(moving.path, upto, now_s=now_s):
            self.end(moving, now_s)
            return False
        if moving.copy is not None:
            self._planned[moving.source].remove(moving)
        self._caches[moving.source].pin(moving.path)
        links = self._links(moving.source, moving.target, moving.tier)
        moving.upto = upto
        moving.size_bytes += size_bytes
        moving.started_s = min(moving.started_s, now_s)
        moving.flow = Flow(links, size_bytes, moving.number)
        self._fabric.start(moving.flow, now_s)
        self._flows_end_s = self._fabric.next_end_s()
        return True

    def idle(self, replica: int) -> list[Moving]:
        """Return the transfers from and to `replica` that wait for their source to have more."""
        inbound = self._inbound[replica]
        return self._planned[replica] + [moving for moving in inbound if moving.flow is None]

    def end(self, moving: Moving, now_s: float) -> None:
        """Forget a transfer that nothing of is on its way: it is done, or given up."""
        if moving in self._planned[moving.source]:
            self._planned[moving.source].remove(moving)
        self._inbound[moving.target].remove(moving)
        moving.ended_s = now_s

    def inbound(self, target: int, path: Path) -> Moving | None:
        """Return the transfer to `target` that brings most of `path`, if there is one."""
        best, best_blocks = None, 0
        for moving in self._inbound[target]:
            blocks = self.brings(moving, path)
            if blocks > best_blocks:
                best, best_blocks = moving, blocks
        return best

    def brings(self, moving: Moving, path: Path) -> int:
        """Return how many leading blocks of `path` will be there once `moving` has landed."""
        shared = 0
        for ours, theirs in zip(path, moving.path, strict=False):
            if ours != theirs:
                break
            shared += 1
        if shared == len(moving.path):
            return moving.blocks
        return sum(self._caches[moving.target].run_blocks(run) for run in path[:shared])

    def ends_s(self, moving: Moving, now_s: float) -> float:
        """Return when all of `moving` will have landed if nothing else starts.

        What its source still computes or receives follows in pieces: the last one is a chunk.
        """
        if moving.flow is not None and moving.upto == moving.blocks:
            return self._fabric.ends_s(moving.flow) + self._latency_s
        have = max(moving.upto, self._caches[moving.target].matched(moving.path))
        left_bytes = max(0, moving.blocks - have) * self._block_bytes
        links = self._links(moving.source, moving.target, moving.tier)
        rate = self._fabric.offered_bytes_s(links)
        last_s = max(moving.ready_s, now_s) + min(left_bytes, self._chunk_bytes) / rate
        return max(now_s + left_bytes / rate, last_s) + self._latency_s

    def next_s(self) -> float:
        """Return when something here happens next; infinite if nothing moves."""
        return min(self._flows_end_s, self._landing[0][0] if self._landing else inf)

    def land(self, now_s: float) -> list[Moving]:
        """Move on to `now_s` and return the transfers of which something landed, to be used now."""
        if self._flows_end_s <= now_s:
            for flow in self._fabric.finish(now_s):
                heappush(self._landing, (now_s + self._latency_s, flow.tag))
            self._flows_end_s = self._fabric.next_end_s()
        landed = []
        while self._landing and self._landing[0][0] <= now_s:
            moving = self.all[heappop(self._landing)[1]]
            self._commit(moving, now_s)
            landed.append(moving)
        return landed

    def _commit(self, moving: Moving, now_s: float) -> None:
        cache = self._caches[moving.target]
        cache.fill(moving.path, moving.upto, origin=moving.number)
        cache.release(moving.path)
        self._caches[moving.source].release(moving.path)
        moving.flow = None
        if moving.upto >= moving.blocks:
            self.end(moving, now_s)
        else:
            self._planned[moving.source].append(moving)

    def _links(self, source: int, target: int, tier: str) -> tuple[int, ...]:
        if source != target:
            disk = (3 * self._count + source,) if tier == "disk" else ()
            return (source, self._count + target, *disk)
        return (2 * self._count + target,) if tier == "ram" else (3 * self._count + target,)
