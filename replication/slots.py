"""The slots of a pool: which block lies where, what is known of it, and which goes first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, nsmallest

from replication.errors import NoRoom
from replication.resident import Resident


@dataclass(slots=True)
class Slot:
    """A slot, and the block in it if it has a `key`: its tenant and its chain hash.

    `generation` grows when the block is given up. `worth` is in seconds a byte, `used` counts uses
    of the whole pool up to the block's last one.
    """

    generation: int = 0
    key: tuple[str, int] | None = None
    parent: int | None = None
    copied: bool = False
    leased: bool = False
    valid: bool = False
    landed_bytes: int = 0
    worth: float = 0.0
    used: int = 0
    digests: dict[int, int] = field(default_factory=dict)

    def resident(self) -> Resident:
        """Return what others are told of the block."""
        assert self.key is not None
        return Resident(*self.key, self.parent, self.copied, self.leased)


class Slots:
    """Slots by their numbers from 0 on. Knows of no lease: who calls says what may go.

    The lowest that is free is taken next: blocks that follow each other in memory are read as one.
    """

    def __init__(self, count: int) -> None:
        self._slots = [Slot() for _ in range(count)]
        self._free = list(range(count))
        self._where: dict[tuple[str, int], int] = {}
        self._ticks = 0

    def __getitem__(self, number: int) -> Slot:
        return self._slots[number]

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, tenant: str, block: int) -> int | None:
        """Return where a block lies, or is being brought to."""
        return self._where.get((tenant, block))

    def valid(self, tenant: str, block: int) -> bool:
        """Return whether a block may be seen."""
        number = self.find(tenant, block)
        return number is not None and self._slots[number].valid

    def residents(self) -> Iterator[Resident]:
        """Yield all valid blocks, those used last first."""
        by_use = sorted(self._slots, key=lambda slot: -slot.used)
        return (slot.resident() for slot in by_use if slot.valid)

    def take(self, key: tuple[str, int], parent: int | None, *, copied: bool, worth: float) -> int:
        """Return a slot that was free, and is for a block now that isn't there yet."""
        number = heappop(self._free)
        generation = self._slots[number].generation
        self._slots[number] = Slot(generation, key, parent, copied, worth=worth)
        self._where[key] = number
        return number

    def empty(self, number: int) -> Slot:
        """Give a block up, and return what was known of it."""
        slot = self._slots[number]
        assert slot.key is not None
        del self._where[slot.key]
        self._slots[number] = Slot(generation=slot.generation + 1)
        heappush(self._free, number)
        return slot

    def touch(self, numbers: Sequence[int]) -> None:
        """Note a use. A head counts as used after its tail, so that tails go first."""
        for number in reversed(numbers):
            self._ticks += 1
            self._slots[number].used = self._ticks

    def going(
        self, count: int, worth: float, idle: Callable[[int], bool], spared: Iterable[int]
    ) -> list[int]:
        """Return what has to go so that `count` are free: the least worth, then longest unused.

        Only those that are `idle`, not `spared`, and worth less than `worth` can go.

        Raises
        ------
        NoRoom
            If that isn't enough.
        """
        short = count - len(self._free)
        if short <= 0:
            return []
        kept = set(spared)
        cheaper = [
            number
            for number, slot in enumerate(self._slots)
            if slot.valid and slot.worth < worth and number not in kept and idle(number)
        ]
        if len(cheaper) < short:
            raise NoRoom(f"{count} blocks need {short - len(cheaper)} more slots than can be freed")
        return nsmallest(
            short, cheaper, key=lambda number: (self._slots[number].worth, self._slots[number].used)
        )
