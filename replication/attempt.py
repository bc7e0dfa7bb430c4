"""One try at one move with one holder: lease, place, read, verify, commit."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from replication.chunks import cut
from replication.errors import Corrupted, Refused, ReplicationError
from replication.layout import Layout
from replication.peer import Holder, Offer
from replication.plan import Move
from replication.store import BlockPool, Placement
from replication.transports.base import Transport
from replication.transports.deadline import within
from replication.transports.pieces import total_bytes

RELEASE_S = 1.0
"""How long to try to end a lease; after that it ends by itself."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """A replica that copies go to: its pool, and the transport that writes into it."""

    pool: BlockPool
    transport: Transport


@dataclass(slots=True)
class Tally:
    """Bytes so far of a move: `ordered_bytes` in this try, `wasted_bytes` in those before it."""

    ordered_bytes: int = 0
    moved_bytes: int = 0
    wasted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """How a try goes on: `turn` waits until so many bytes may go, `left_s` is the time it has.

    `now_s` tells the target pool's time, on which its own leases run.
    """

    chunk_bytes: int
    lease_s: float
    turn: Callable[[int], Awaitable[None]]
    left_s: Callable[[], float]
    now_s: Callable[[], float]


async def attempt(move: Move, holder: Holder, target: Target, pace: Pace, tally: Tally) -> None:
    """Bring what is missing of a move's prefix from `holder`, or leave the target as it was.

    Raises
    ------
    ReplicationError
        If it didn't work. No slot is lost and nothing of it can be seen; what was read is in
        `tally` as wasted.
    """
    offer = await holder.lease(move.tenant, move.chain, pace.lease_s)
    try:
        _check_offer(offer, move, target.pool.layout)
        placement = target.pool.place(move.tenant, move.chain, move.worth, pace.now_s())
        try:
            await _read(offer, placement, move, target, pace, tally)
            await holder.verify(offer.lease)
            await _compare(offer, placement, move, target.pool)
            for rank in target.pool.layout.ranks:
                target.pool.commit(placement, rank)
            tally.moved_bytes, tally.ordered_bytes = tally.ordered_bytes, 0
        except BaseException:
            target.pool.abort(placement)
            raise
    finally:
        tally.wasted_bytes += tally.ordered_bytes
        tally.ordered_bytes = 0
        await _let_go(offer, holder)


def _check_offer(offer: Offer, move: Move, layout: Layout) -> None:
    """Refuse what can't be our blocks: a holder may be of another model, or of another mind."""
    if offer.layout.layer_bytes != layout.layer_bytes:
        raise Refused("the holder's blocks are cut in another way than the target's")
    blocks, ranks = len(move.chain), len(layout.ranks)
    if len(offer.lease.slots) != blocks or any(len(one) != blocks for one in offer.digests):
        raise Refused(f"the holder offers other than the {blocks} blocks it was asked for")
    if len(offer.regions) != ranks or len(offer.digests) != ranks:
        raise Refused(f"the holder offers other than {ranks} ranks")
    if not all(0 <= slot < offer.layout.slots for slot in offer.lease.slots):
        raise Refused("the holder offers slots that it hasn't got")


async def _read(
    offer: Offer, placement: Placement, move: Move, target: Target, pace: Pace, tally: Tally
) -> None:
    held = dict(zip(move.chain, offer.lease.slots, strict=True))
    slots = [
        (held[block], slot) for block, slot in zip(placement.hashes, placement.slots, strict=True)
    ]
    pool = target.pool
    for rank in pool.layout.ranks:
        for chunk in cut(offer.layout, pool.layout, rank, slots, pace.chunk_bytes):
            size_bytes = total_bytes(chunk)
            await pace.turn(size_bytes)
            tally.ordered_bytes += size_bytes
            await target.transport.read(
                offer.regions[rank], chunk, pool.memories[rank], pace.left_s()
            )


async def _compare(offer: Offer, placement: Placement, move: Move, pool: BlockPool) -> None:
    """Look at what has arrived, block by block."""
    position = {block: number for number, block in enumerate(move.chain)}
    for block, slot in zip(placement.hashes, placement.slots, strict=True):
        await asyncio.sleep(0)
        for rank in pool.layout.ranks:
            if pool.digest(slot, rank) != offer.digests[rank][position[block]]:
                raise Corrupted(f"block {block} of rank {rank} is not what the holder has")


async def _let_go(offer: Offer, holder: Holder) -> None:
    try:
        async with within(RELEASE_S):
            await holder.release(offer.lease)
    except ReplicationError as failed:
        logger.info("lease %d ends by itself: %s", offer.lease.number, failed)
