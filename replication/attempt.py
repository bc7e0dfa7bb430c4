"""One try to bring parcels of a copy from one giver: lease, read, verify, release."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from replication.chunks import Parcel, Stretch, pieces
from replication.digests import digests
from replication.errors import Corrupted, Refused, ReplicationError
from replication.forwarding import Following, Forwarder
from replication.layout import Layout
from replication.memory import fill
from replication.parcels import Parcels
from replication.peer import Holder, Offer
from replication.transports.base import Transport
from replication.transports.deadline import within
from replication.transports.pieces import total_bytes
from replication.transports.together import together

RELEASE_S = 1.0
"""How long to try to end a lease; after that it ends by itself."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Giver:
    """Whom a copy turns to: a holder for what the blocks have to be like, and for their bytes.

    With a `forwarder`, which goes by the name of `via`, the bytes come from there.
    `settled_blocks` counts what it has brought.
    """

    name: str
    holder: Holder
    transport: Transport
    via: str = ""
    forwarder: Forwarder | None = None
    settled_blocks: int = 0

    @property
    def path(self) -> str:
        """Say where bytes come from."""
        return f"{self.name} via {self.via}" if self.via else self.name

    @property
    def sender(self) -> str:
        """Return whose link out the bytes take."""
        return self.via or self.name


@dataclass(frozen=True, slots=True)
class Pace:
    """How tries go on: `turn` waits until so many bytes may go over a giver's link and ours.

    `window` is the number of chunks under way at once, `left_s` the time that the move has.
    """

    window: int
    lease_s: float
    turn: Callable[[Giver, int], Awaitable[None]]
    left_s: Callable[[], float]


async def attempt(giver: Giver, copy: Parcels, pace: Pace) -> None:
    """Bring parcels of `copy` from `giver` until there are none to take.

    Raises
    ------
    ReplicationError
        If it didn't work. What it has settled stays so; the rest can be taken by others.
    """
    async with within(pace.lease_s), _opened(giver, copy, pace.lease_s) as way:
        trying = _Trying(giver, way, copy, pace)
        try:
            chunks = trying.chunks()
            await together(trying.work(chunks) for _ in range(pace.window))
        finally:
            trying.give_back()


@dataclass(frozen=True, slots=True)
class _Way:
    """What was promised of the blocks, and where they are read: there too, or at a forwarder."""

    promise: Offer
    found: Offer
    following: Following | None


@dataclass(slots=True)
class _Job:
    parcel: Parcel
    done: set[Stretch] = field(default_factory=set)

    def landed_bytes(self) -> int:
        """Return up to where its blocks are there without a gap."""
        upto = 0
        for start, end in self.parcel.chunks:
            if (start, end) not in self.done:
                break
            upto = end
        return upto


class _Trying:
    def __init__(self, giver: Giver, way: _Way, copy: Parcels, pace: Pace) -> None:
        self._giver = giver
        self._way = way
        self._copy = copy
        self._pace = pace
        self._jobs: list[_Job] = []
        self._position = {block: number for number, block in enumerate(copy.move.chain)}

    def chunks(self) -> Iterator[tuple[_Job, Stretch]]:
        """Yield chunks of one parcel after the other, each of which is taken from the rest."""
        while (parcel := self._copy.take()) is not None:
            job = _Job(parcel)
            self._jobs.append(job)
            for stretch in parcel.chunks:
                yield job, stretch

    async def work(self, chunks: Iterator[tuple[_Job, Stretch]]) -> None:
        """Bring chunks until there are no more; who brings a parcel's last one checks it."""
        for job, stretch in chunks:
            await self._bring(job.parcel, stretch)
            job.done.add(stretch)
            self._copy.land(job.parcel, job.landed_bytes())
            if len(job.done) == len(job.parcel.chunks):
                await self._check(job.parcel)
                self._jobs.remove(job)
                self._giver.settled_blocks += len(job.parcel.blocks)
                self._copy.settle(job.parcel)

    def give_back(self) -> None:
        """Leave to others what was not settled."""
        for job in self._jobs:
            self._copy.give_back(job.parcel)

    async def _bring(self, parcel: Parcel, stretch: Stretch) -> None:
        found, pool = self._way.found, self._copy.pool
        blocks = self._copy.blocks(parcel)
        if self._way.following is not None:
            await self._way.following.reach(blocks, stretch[1])
        here = [found.lease.slots[self._position[block]] for block in blocks]
        slots = list(zip(here, self._copy.slots(parcel), strict=True))
        by_rank = [
            pieces(found.layout, pool.layout, rank, slots, stretch) for rank in pool.layout.ranks
        ]
        size_bytes = sum(map(total_bytes, by_rank))
        await self._pace.turn(self._giver, size_bytes)
        self._copy.ordered_bytes += size_bytes
        left_s = self._pace.left_s()
        await together(
            fill(memory, self._giver.transport, region, some, left_s)
            for region, some, memory in zip(found.regions, by_rank, pool.memories, strict=True)
            if some
        )

    async def _check(self, parcel: Parcel) -> None:
        """Make sure that what has arrived is what was held, and is held still."""
        blocks, slots = self._copy.blocks(parcel), self._copy.slots(parcel)
        promised = [self._promised(block) for block in blocks]
        checked = [number for number, one in enumerate(promised) if None not in one]
        found = digests(self._copy.pool, [slots[number] for number in checked])
        wrong = [blocks[number] for number in checked if await anext(found) != promised[number]]
        if self._giver.forwarder is not None:
            await self._giver.forwarder.verify(self._way.found.lease)
        await self._giver.holder.verify(self._way.promise.lease)
        if wrong:
            raise Corrupted(f"block {wrong[0]} is not what {self._giver.name} holds")

    def _promised(self, block: int) -> tuple[int | None, ...]:
        number = self._position[block]
        return tuple(by_block[number] for by_block in self._way.promise.digests)


@asynccontextmanager
async def _opened(giver: Giver, copy: Parcels, lease_s: float) -> AsyncIterator[_Way]:
    """Give what may be read until the end of this, which ends all leases."""
    move, layout = copy.move, copy.pool.layout
    promise = await giver.holder.lease(move.tenant, move.chain, lease_s)
    try:
        _check_offer(promise, len(move.chain), layout)
        _check_digests(promise, len(move.chain), layout)
        copy.begin()  # before it waits for a forwarder: somebody may follow us already
        if giver.forwarder is None:
            yield _Way(promise, promise, None)
            return
        found = await giver.forwarder.follow(move.tenant, move.chain, lease_s)
        try:
            _check_offer(found, len(move.chain), layout)
            yield _Way(promise, found, Following(giver.forwarder, found.lease, move.chain))
        finally:
            await _let_go(found, giver.forwarder)
    finally:
        await _let_go(promise, giver.holder)


def _check_offer(offer: Offer, blocks: int, layout: Layout) -> None:
    """Refuse what can't be our blocks: a holder may be of another model, or of another mind."""
    if offer.layout.layer_bytes != layout.layer_bytes:
        raise Refused("the holder's blocks are cut in another way than the target's")
    if len(offer.lease.slots) != blocks:
        raise Refused(f"the holder offers other than the {blocks} blocks it was asked for")
    if len(offer.regions) != len(layout.ranks):
        raise Refused(f"the holder offers other than {len(layout.ranks)} ranks")
    if not all(0 <= slot < offer.layout.slots for slot in offer.lease.slots):
        raise Refused("the holder offers slots that it hasn't got")


def _check_digests(offer: Offer, blocks: int, layout: Layout) -> None:
    if [len(one) for one in offer.digests] != [blocks] * len(layout.ranks):
        raise Refused(f"the holder offers other than a digest a rank for {blocks} blocks")


async def _let_go(offer: Offer, holder: Holder | Forwarder) -> None:
    try:
        async with within(RELEASE_S):
            await holder.release(offer.lease)
    except ReplicationError as failed:
        logger.info("lease %d ends by itself: %s", offer.lease.number, failed)
