"""Random KV over every transport and tier, tensor parallel ranks and block size: equal or not."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.copying.ends import TENANT, TOKEN, chain, put_random
from benchmarks.copying.models import layer_bytes
from replication.disk import DiskTier
from replication.executor import Executor
from replication.layout import Layout
from replication.memory import host_view
from replication.peer import Holder, PoolHolder
from replication.plan import Move
from replication.store import BlockPool
from replication.target import Target
from replication.transports.base import Transport
from replication.transports.choice import AutoTransport
from replication.transports.memory import MemoryTransport

KINDS = ("memory", "shm", "tcp")
TIERS = ("peer", "own ram", "own disk")
RANKS = (1, 2, 4)
TOKENS = (16, 64, 256, 512)
BLOCKS = 2


async def exact(model: str = "qwen3-8b", verbs: bool = False) -> list[dict[str, Any]]:
    """Copy 2 blocks in each way; return for each whether all bytes arrived as they were."""
    kinds = ("verbs",) if verbs else KINDS
    ways = [(kind, "peer") for kind in kinds] + ([] if verbs else [("", one) for one in TIERS[1:]])
    found = []
    for kind, tier in ways:
        for ranks in RANKS:
            for tokens in (16,) if verbs else TOKENS:
                layers = tuple(map(tuple, layer_bytes(model, tokens, ranks)))
                row = {"transport": kind, "tier": tier, "ranks": ranks, "block_tokens": tokens}
                found.append({**row, "exact": await _copy(kind, tier, Layout(BLOCKS, layers))})
    return found


async def _copy(kind: str, tier: str, layout: Layout) -> bool:
    """Copy all blocks once, and compare what is at both ends."""
    near, far = await _transports(kind)
    scratch = tempfile.mkdtemp(prefix="btb-exact-")
    try:
        source_memories, target_memories = (
            [_allocate(one, layout.region_bytes(rank)) for rank in layout.ranks]
            for one in (far, near)
        )
        source = BlockPool(layout, source_memories, epoch=1)
        put_random(source, source_memories, BLOCKS, seed=2)
        target = BlockPool(layout, target_memories, epoch=1)
        holder: Holder = PoolHolder(
            source, [far.register(one) for one in source_memories], lambda: 0.0, far.digest_every
        )
        others: dict[str, Transport] = {}
        if tier == "own disk":
            disk = DiskTier("source", Path(scratch), layout.layer_bytes, BLOCKS, lambda: 0.0)
            await disk.keep(source, TENANT, chain(BLOCKS))
            holder, others = disk, {"source": disk}
        executor = Executor(
            {"here": Target(target, near, others)}, {"source": holder}, clock=lambda: 0.0
        )
        size_bytes = BLOCKS * layout.block_bytes
        move = Move(
            TENANT, chain(BLOCKS), ("source",), "here", size_bytes, float("inf"), 1.0, "benchmark"
        )
        (result,) = await executor.run([move])
        return result.ok and _equal(source, target)
    finally:
        shutil.rmtree(scratch)
        await near.aclose()
        if far is not near:
            await far.aclose()


async def _transports(kind: str) -> tuple[Transport, Transport]:
    if kind == "memory":
        network: dict[str, MemoryTransport] = {}
        return MemoryTransport("here", network), MemoryTransport("source", network)
    one = await AutoTransport.start(TOKEN, kind=kind or "shm")
    return one, (await AutoTransport.start(TOKEN, kind=kind)) if kind else one


def _allocate(transport: Transport, size_bytes: int) -> memoryview:
    if isinstance(transport, AutoTransport):
        return transport.allocate(size_bytes)
    return memoryview(bytearray(size_bytes))


def _equal(one: BlockPool, other: BlockPool) -> bool:
    slots = [pool.lease(TENANT, chain(BLOCKS), 1.0, 0.0).slots for pool in (one, other)]
    return all(
        host_view(one.memories[rank])[start : start + size]
        == host_view(other.memories[rank])[end : end + size]
        for here, there in zip(*slots, strict=True)
        for rank in one.layout.ranks
        for (start, size), (end, _) in zip(
            one.layout.stretches(rank, here), other.layout.stretches(rank, there), strict=True
        )
    )
