"""Leases: a promise to keep blocks where they are, which ends by itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from replication.errors import LeaseLost


@dataclass(frozen=True, slots=True)
class Lease:
    """Blocks that a holder keeps until `expires_s` on its own clock, or until it is released.

    `generations` tells whether a slot still holds what it held: it differs once the block has been
    given up. `epoch` is the holder's; one that starts anew knows no earlier lease.
    """

    number: int
    epoch: int
    slots: tuple[int, ...]
    generations: tuple[int, ...]
    expires_s: float


class Leases:
    """Keeps count of what is leased. Holds no blocks and reads no clock."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._last = 0
        self._live: dict[int, Lease] = {}
        self._ends: list[tuple[float, int]] = []
        self._pins: Counter[tuple[int, int]] = Counter()

    def __len__(self) -> int:
        """Return how many have neither been released nor expired."""
        return len(self._live)

    def grant(self, slots: Sequence[int], generations: Sequence[int], until_s: float) -> Lease:
        """Return a new lease, its slots pinned."""
        self._last += 1
        lease = Lease(self._last, self._epoch, tuple(slots), tuple(generations), until_s)
        self._live[lease.number] = lease
        if until_s < inf:
            heappush(self._ends, (until_s, lease.number))
        self._pins.update(zip(lease.slots, lease.generations, strict=True))
        return lease

    def check(self, lease: Lease, now_s: float) -> None:
        """Return if this very lease still stands.

        Raises
        ------
        LeaseLost
            If it has expired or been released, is of another epoch, or was never given.
        """
        self.expire(now_s)
        if lease.epoch != self._epoch:
            raise LeaseLost(f"lease of epoch {lease.epoch}; the holder is in epoch {self._epoch}")
        if self._live.get(lease.number) != lease:
            raise LeaseLost(f"lease {lease.number} has ended")

    def release(self, lease: Lease) -> None:
        """End a lease now. One that has ended, or is not of this epoch, changes nothing."""
        if self._live.get(lease.number) != lease:
            return
        del self._live[lease.number]
        for pin in zip(lease.slots, lease.generations, strict=True):
            self._pins[pin] -= 1
            if not self._pins[pin]:
                del self._pins[pin]

    def expire(self, now_s: float) -> None:
        """End what has run out at `now_s`."""
        while self._ends and (self._ends[0][0] <= now_s or self._ends[0][1] not in self._live):
            ended = self._live.get(heappop(self._ends)[1])
            if ended is not None:
                self.release(ended)

    def pinned(self, slot: int, generation: int) -> bool:
        """Return whether a lease that stands holds the slot, as it is in this generation."""
        return (slot, generation) in self._pins
