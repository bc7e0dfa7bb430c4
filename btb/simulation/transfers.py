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
    """A transfer: planned until its source has the KV, then under way, then over.

    `copy` is the order for it, None where the engine loads by itself. While it is planned, `flow`
    is None and `started_s` is when the source is expected to have it. `waiting` are the jobs at
    the target that wait for it.
    """

    number: int
    started_s: float
    source: int
    target: int
    tier: str
    path: Path
    blocks: int
    size_bytes: float
    copy: Copy | None
    flow: Flow | None = None
    ended_s: float = inf
    used: bool = False
    waiting: list[Job] = field(default_factory=list)


class Transfers:
    """Carries KV over the links of a cluster, and makes it usable when all of it has come.

    A replica has four links, each shared fairly: NICs out, NICs in, host link, disk. The NICs reach
    a peer's RAM without its host link, which joins RAM and HBM.
    """

    def __init__(
        self, setup: Setup, caches: Sequence[ReplicaCache], block_bytes: int, latency_s: float
    ) -> None:
        count = len(caches)
        self._caches = caches
        self._count = count
        self._block_bytes = block_bytes
        self._latency_s = latency_s
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

    def plan(
        self,
        source: int,
        target: int,
        tier: str,
        path: Path,
        blocks: int,
        starts_s: float,
        copy: Copy | None = None,
    ) -> Moving:
        """Note that the first `blocks` of `path` are to be moved, from about `starts_s` on.

        What of it is at the target already is not moved again.
        """
        have = self._caches[target].matched(path)
        size_bytes = float((blocks - have) * self._block_bytes)
        moving = Moving(
            len(self.all), starts_s, source, target, tier, path, blocks, size_bytes, copy
        )
        self.all.append(moving)
        self._inbound[target].append(moving)
        if copy is not None:
            self._planned[source].append(moving)
        return moving

    def begin(self, moving: Moving, now_s: float) -> bool:
        """Begin to move; False, and it is forgotten, if the target has no room for it.

        Its place there, and the blocks at the source, are pinned until it has landed.
        """
        if moving in self._planned[moving.source]:
            self._planned[moving.source].remove(moving)
        if not self._caches[moving.target].reserve(moving.path, moving.blocks, now_s=now_s):
            self._inbound[moving.target].remove(moving)
            moving.size_bytes = 0.0
            return False
        self._caches[moving.source].pin(moving.path)
        links = self._links(moving.source, moving.target, moving.tier)
        moving.started_s = now_s
        moving.flow = Flow(links, moving.size_bytes, moving.number)
        self._fabric.start(moving.flow, now_s)
        self._flows_end_s = self._fabric.next_end_s()
        return True

    def planned(self, source: int) -> list[Moving]:
        """Return the transfers that wait for `source` to have their KV."""
        return list(self._planned[source])

    def give_up(self, moving: Moving) -> None:
        """Forget a planned transfer."""
        self._planned[moving.source].remove(moving)
        self._inbound[moving.target].remove(moving)
        moving.size_bytes = 0.0

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

    def ends_s(self, moving: Moving) -> float:
        """Return when `moving` will have landed if nothing else starts."""
        if moving.flow is None:
            links = self._links(moving.source, moving.target, moving.tier)
            took_s = moving.size_bytes / self._fabric.offered_bytes_s(links)
            return moving.started_s + took_s + self._latency_s
        return self._fabric.ends_s(moving.flow) + self._latency_s

    def next_s(self) -> float:
        """Return when something here happens next; infinite if nothing moves."""
        return min(self._flows_end_s, self._landing[0][0] if self._landing else inf)

    def land(self, now_s: float) -> list[Moving]:
        """Move on to `now_s` and return the transfers that have landed; their blocks are usable."""
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
        cache.fill(moving.path, moving.blocks, origin=moving.number)
        cache.release(moving.path)
        self._caches[moving.source].release(moving.path)
        self._inbound[moving.target].remove(moving)
        moving.ended_s = now_s

    def _links(self, source: int, target: int, tier: str) -> tuple[int, ...]:
        if source != target:
            disk = (3 * self._count + source,) if tier == "disk" else ()
            return (source, self._count + target, *disk)
        return (2 * self._count + target,) if tier == "ram" else (3 * self._count + target,)
