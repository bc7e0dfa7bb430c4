"""A replica's KV memory as a pool of blocks, each of which is whole or can't be seen."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from math import inf

import xxhash

from replication.errors import Busy, LeaseLost, Recycled
from replication.layout import Layout
from replication.lease import Lease, Leases
from replication.memory import Memory
from replication.resident import Observer, Resident
from replication.slots import Slots


class State(StrEnum):
    """What a slot is in. Only a valid block is ever offered or read; a leased one is valid too."""

    FREE = "free"
    FILLING = "filling"
    VALID = "valid"
    LEASED = "leased"


@dataclass(frozen=True, slots=True)
class Placement:
    """Slots that wait for the blocks of a chain which a pool hasn't got: `hashes`, in order."""

    number: int
    hashes: tuple[int, ...]
    slots: tuple[int, ...]


@dataclass(slots=True)
class _Open:
    placement: Placement
    ranks: set[int]
    head: Lease


class BlockPool:
    """Says which blocks lie where, keeps what is leased, and makes room for what is worth more.

    A block is known by its tenant and its chain hash. Its slot's generation grows when the block
    is given up, so whoever noted it can tell later whether what was read was still that block.

    Parameters
    ----------
    layout
        How `memories` are cut.
    memories
        The memory of each rank. The pool never writes to it.
    epoch
        A number that no earlier pool over this memory had: leases of theirs end with them.

    Raises
    ------
    ValueError
        If a memory has not the size that `layout` says.
    """

    def __init__(self, layout: Layout, memories: Sequence[Memory], epoch: int) -> None:
        sizes = [memory.nbytes for memory in memories]
        wanted = [layout.region_bytes(rank) for rank in layout.ranks]
        if sizes != wanted:
            raise ValueError(f"memories must be of {wanted} bytes, got {sizes}")
        self.layout = layout
        self.memories = tuple(
            memory.cast("B") if isinstance(memory, memoryview) else memory for memory in memories
        )
        self.epoch = epoch
        self.observer: Observer | None = None
        self._leases = Leases(epoch)
        self._slots = Slots(layout.slots)
        self._open: dict[int, _Open] = {}
        self._watching: set[Callable[[], None]] = set()
        self._placed = 0

    def resident(self, tenant: str, chain: Sequence[int]) -> int:
        """Return how many leading blocks are valid on all ranks."""
        return sum(1 for _ in takewhile(lambda block: self._slots.valid(tenant, block), chain))

    def missing(self, tenant: str, chain: Sequence[int]) -> tuple[int, ...]:
        """Return the blocks of a chain that aren't valid here, in order."""
        return tuple(
            dict.fromkeys(block for block in chain if not self._slots.valid(tenant, block))
        )

    def states(self, now_s: float) -> Counter[State]:
        """Return how many slots are in each state."""
        self._leases.expire(now_s)
        return Counter(map(self._state, range(len(self._slots))))

    def residents(self) -> Iterator[Resident]:
        """Yield all valid blocks, a chain's earlier ones mostly before its later ones."""
        return self._slots.residents()

    def leases(self, now_s: float) -> int:
        """Return how many leases stand, those that keep the heads of placements among them."""
        self._leases.expire(now_s)
        return len(self._leases)

    def lease(self, tenant: str, chain: Sequence[int], until_s: float, now_s: float) -> Lease:
        """Pin the blocks of a chain, all of them, until `until_s`.

        Raises
        ------
        LeaseLost
            If not all of them are valid here for this tenant.
        """
        self._leases.expire(now_s)
        slots = self._held(tenant, chain)
        if len(slots) < len(chain):
            held = self.resident(tenant, chain)
            raise LeaseLost(f"{held} of {len(chain)} blocks are held")
        for slot in slots:
            self._slots[slot].leased = True
        return self._pin(slots, until_s)

    def follow(self, tenant: str, chain: Sequence[int], until_s: float, now_s: float) -> Lease:
        """Note the blocks of a chain, those too that are still being brought.

        What has landed of them may be read, but is worth only what it proves to be: nobody has
        compared it yet. `check` tells if a block was given up.

        Raises
        ------
        LeaseLost
            If a block is neither valid here nor being brought.
        """
        self._leases.expire(now_s)
        slots = [self._slots.find(tenant, block) for block in chain]
        known = [slot for slot in slots if slot is not None]
        if len(known) < len(chain):
            raise LeaseLost(f"{len(known)} of {len(chain)} blocks are held or on their way")
        return self._pin(known, until_s)

    def landed(self, lease: Lease) -> tuple[int, ...]:
        """Return how much of each block of a lease can be read, in bytes from its first on."""
        whole = self.layout.block_bytes
        slots = [self._slots[number] for number in lease.slots]
        return tuple(whole if slot.valid else slot.landed_bytes for slot in slots)

    def land(self, placement: Placement, number: int, upto_bytes: int) -> None:
        """Note that a placement's block number `number` is there up to a byte."""
        if placement.number in self._open:
            self._slots[placement.slots[number]].landed_bytes = upto_bytes
            self._tell()

    @contextmanager
    def watched(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback`, inside, whenever something is placed, lands, or is given up."""
        self._watching.add(callback)
        try:
            yield
        finally:
            self._watching.discard(callback)

    def check(self, lease: Lease, now_s: float) -> None:
        """Return if what was read under `lease` until now was what it promised.

        Raises
        ------
        LeaseLost
            If it has ended.
        Recycled
            If a block was taken back in spite of it.
        """
        self._leases.check(lease, now_s)
        for slot, generation in zip(lease.slots, lease.generations, strict=True):
            if self._slots[slot].generation != generation:
                raise Recycled(f"slot {slot} was taken back under lease {lease.number}")

    def release(self, lease: Lease) -> None:
        """End a lease. One that has ended, or is of another epoch, changes nothing."""
        self._leases.release(lease)

    def place(
        self, tenant: str, chain: Sequence[int], worth: float, now_s: float, *, copied: bool = True
    ) -> Placement:
        """Reserve slots for the blocks of a chain that are missing; the others stay until it ends.

        Blocks that are worth less than `worth` a byte, and that nobody leases, make room: the
        cheapest first, then the longest unused, tail before head. `copied` is False where they are
        computed here.

        Raises
        ------
        Busy
            If another placement waits for one of the blocks.
        NoRoom
            If that isn't enough. Nothing has been given up then.
        """
        self._leases.expire(now_s)
        hashes = self.missing(tenant, chain)
        if any(self._slots.find(tenant, block) is not None for block in hashes):
            raise Busy("a block is being brought here already")
        head = self._held(tenant, chain)
        for number in self._slots.going(len(hashes), worth, self._idle, spared=head):
            self._empty(number)
        parents = dict(zip(chain, (None, *chain), strict=False))
        slots = tuple(
            self._slots.take((tenant, block), parents[block], copied=copied, worth=worth)
            for block in hashes
        )
        self._placed += 1
        placement = Placement(self._placed, hashes, slots)
        self._open[placement.number] = _Open(
            placement, set(self.layout.ranks), self._pin(head, inf)
        )
        self._tell()
        return placement

    def commit(self, placement: Placement, rank: int) -> bool:
        """Note that `rank` has all of it; the blocks become valid, at once, with the last rank.

        Returns
        -------
        bool
            Whether they are valid now.

        Raises
        ------
        Recycled
            If a block that was here before, and that these follow, was taken back meanwhile.
        ValueError
            If the placement has ended.
        """
        opened = self._open.get(placement.number)
        if opened is None:
            raise ValueError(f"placement {placement.number} has ended")
        opened.ranks.discard(rank)
        if opened.ranks:
            return False
        self.check(opened.head, -inf)
        for slot in placement.slots:
            self._slots[slot].valid = True
        self._slots.touch(placement.slots)
        self._close(opened)
        if self.observer is not None:
            self.observer.stored([self._slots[slot].resident() for slot in placement.slots])
        return True

    def abort(self, placement: Placement) -> None:
        """Give the slots back; nothing of it was ever visible. Once it has ended, no effect.

        Whoever was writing to them must have stopped.
        """
        opened = self._open.get(placement.number)
        if opened is None:
            return
        for slot in placement.slots:
            self._empty(slot)
        self._close(opened)

    def reclaim(self, tenant: str, block: int) -> bool:
        """Take a valid block's slot back at once, leased or not, as the memory's owner may.

        Returns
        -------
        bool
            Whether there was one. A block that is being filled is not touched.
        """
        found = self._held(tenant, [block])
        for number in found:
            self._empty(number)
        return bool(found)

    def drop(self, tenant: str, blocks: Iterable[int], now_s: float) -> int:
        """Give valid blocks up that nobody leases; return how many."""
        self._leases.expire(now_s)
        idle = list(filter(self._idle, dict.fromkeys(self._held(tenant, blocks))))
        for number in idle:
            self._empty(number)
        return len(idle)

    def digest(self, slot: int, rank: int) -> int:
        """Return the XXH3 of what a rank's memory holds of a block, layer after layer.

        It is worked out once for each valid block, and each time for one that is being filled. May
        be called in a thread: what it finds of a block that is given up meanwhile is not kept.
        """
        held = self._slots[slot]
        known = held.digests.get(rank)
        if known is not None:
            return known
        lasts = held.valid
        state = xxhash.xxh3_64()
        for offset, size_bytes in self.layout.stretches(rank, slot):
            state.update(self.memories[rank][offset : offset + size_bytes])
        if lasts:
            held.digests[rank] = state.intdigest()
        return state.intdigest()

    def _held(self, tenant: str, blocks: Iterable[int]) -> list[int]:
        """Return where those of the blocks lie that are valid, in order."""
        found = [self._slots.find(tenant, block) for block in blocks]
        return [number for number in found if number is not None and self._slots[number].valid]

    def _idle(self, number: int) -> bool:
        return self._state(number) is State.VALID

    def _state(self, number: int) -> State:
        slot = self._slots[number]
        if slot.key is None:
            return State.FREE
        if not slot.valid:
            return State.FILLING
        return State.LEASED if self._leases.pinned(number, slot.generation) else State.VALID

    def _pin(self, slots: Sequence[int], until_s: float) -> Lease:
        self._slots.touch(slots)
        return self._leases.grant(slots, [self._slots[slot].generation for slot in slots], until_s)

    def _empty(self, number: int) -> None:
        slot = self._slots.empty(number)
        if slot.valid and self.observer is not None:
            self.observer.removed(slot.resident())

    def _close(self, opened: _Open) -> None:
        del self._open[opened.placement.number]
        self._leases.release(opened.head)
        self._tell()

    def _tell(self) -> None:
        for callback in tuple(self._watching):
            callback()
