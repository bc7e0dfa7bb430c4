"""Works out digests without holding up the event loop."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from replication.store import BlockPool

INLINE_BYTES = 256 << 10
"""Up to here a thread costs more than the digest."""
BATCH_BYTES = 32 << 20
"""What a thread does before anybody looks whether it is still wanted."""


async def digests(pool: BlockPool, slots: Sequence[int]) -> AsyncIterator[tuple[int, ...]]:
    """Yield the digests of each slot, by rank, in order; others get their turn in between."""
    ranks = pool.layout.ranks

    def work_out(some: Sequence[int]) -> list[tuple[int, ...]]:
        return [tuple(pool.digest(slot, rank) for rank in ranks) for slot in some]

    block_bytes = pool.layout.block_bytes
    together = max(1, min(BATCH_BYTES // block_bytes, len(slots)))
    for first in range(0, len(slots), together):
        some = slots[first : first + together]
        if len(some) * block_bytes <= INLINE_BYTES:
            await asyncio.sleep(0)
            found = work_out(some)
        else:
            found = await asyncio.to_thread(work_out, some)
        for one in found:
            yield one
