"""Which prefixes have a burst coming up, without looking at all of them."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from forecasting.node import PrefixNode
from models.recurrence import Schedule

CLEAR_SHARE = 8
"""A full queue is looked through for stale entries once in so many offers: its limit over this."""


class _Entry(NamedTuple):
    """The k-th next burst of `schedule` may begin from, or until, `at_s`; `order` settles ties."""

    at_s: float
    order: int
    k: int
    schedule: Schedule
    node: PrefixNode

    @property
    def stale(self) -> bool:
        """Whether the prefix is gone, or has another schedule by now."""
        return not self.node.alive or self.node.stats.schedule is not self.schedule


class DueQueue:
    """Prefixes with a schedule, by when their next burst may begin.

    One heap holds what is to come, by when it may begin, so what is due soon is found without a
    scan; another what may begin now, by when it has been missed. A prefix that gets a new schedule
    gets a new entry; the old one is dropped when it is come upon.

    Parameters
    ----------
    limit
        Most entries. Where all are valid, a new one is not taken.

    Attributes
    ----------
    dropped
        Schedules not taken.

    Raises
    ------
    ValueError
        If `limit` is below 1.
    """

    def __init__(self, limit: int = 65_536) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit!r}")
        self.dropped = 0
        self._limit = limit
        self._orders = count()
        self._coming: list[_Entry] = []
        self._open: list[_Entry] = []
        self._offered = 0

    def __len__(self) -> int:
        """Return the number of entries, stale ones too."""
        return len(self._coming) + len(self._open)

    def add(self, node: PrefixNode, schedule: Schedule) -> None:
        """Watch `node`, whose schedule this is from now on."""
        self._offered += 1
        if len(self) >= self._limit and self._offered * CLEAR_SHARE >= self._limit:
            self._clear()
        if len(self) >= self._limit:
            self.dropped += 1
            return
        self._push(node, schedule, 1)

    def advance(self, now_s: float) -> None:
        """Go on to `now_s`: open what may begin by now, and let go of what has not come."""
        while self._coming and self._coming[0].at_s <= now_s:
            _, order, k, schedule, node = entry = heappop(self._coming)
            if not entry.stale:
                heappush(self._open, _Entry(schedule.closes_s(k), order, k, schedule, node))
        while self._open and self._open[0].at_s < now_s:
            entry = heappop(self._open)
            if not entry.stale and entry.k < len(entry.schedule.levers):
                self._push(entry.node, entry.schedule, entry.k + 1)

    def due(self, now_s: float, within_s: float) -> list[PrefixNode]:
        """Return the prefixes with a burst that may begin by `now_s` + `within_s`, in no order."""
        entries = (*self._open, *self._opening(now_s + within_s))
        return [entry.node for entry in entries if not entry.stale]

    def _opening(self, until_s: float) -> Iterator[_Entry]:
        """Yield what may begin by `until_s`: the top of the heap, walked as the tree that it is."""
        heap, places = self._coming, [0]
        while places:
            place = places.pop()
            if place < len(heap) and heap[place].at_s <= until_s:
                yield heap[place]
                places += (2 * place + 1, 2 * place + 2)

    def _push(self, node: PrefixNode, schedule: Schedule, k: int) -> None:
        entry = _Entry(schedule.opens_s(k), next(self._orders), k, schedule, node)
        heappush(self._coming, entry)

    def _clear(self) -> None:
        """Drop stale entries."""
        self._offered = 0
        for heap in (self._coming, self._open):
            heap[:] = [entry for entry in heap if not entry.stale]
            heapify(heap)
