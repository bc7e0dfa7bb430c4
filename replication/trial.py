"""Random bytes in place of KV: to try copies out before an engine writes any."""

import asyncio
from collections.abc import Sequence
from random import Random

from replication.memory import host_view
from replication.store import BlockPool


async def fill(pool: BlockPool, tenant: str, chain: Sequence[int], seed: int, now_s: float) -> int:
    """Make up the missing blocks of a chain; return how many.

    What a block holds follows from seed, tenant, hash and rank: two pools that are filled alike
    hold the same. Its worth is 0, so any copy may take its place.

    Raises
    ------
    Busy, NoRoom
        As `BlockPool.place` does.
    """
    placement = pool.place(tenant, chain, 0.0, now_s, copied=False)
    try:
        for block, slot in zip(placement.hashes, placement.slots, strict=True):
            for rank in pool.layout.ranks:
                await asyncio.sleep(0)
                chance = Random(f"{seed} {tenant} {block} {rank}")
                for offset, size_bytes in pool.layout.stretches(rank, slot):
                    made_up = chance.randbytes(size_bytes)
                    host_view(pool.memories[rank])[offset : offset + size_bytes] = made_up
        for rank in pool.layout.ranks:
            pool.commit(placement, rank)
    except BaseException:
        pool.abort(placement)
        raise
    return len(placement.hashes)
