"""How many requests share a prefix within a sliding window, and how often that is a burst."""

from collections import deque
from math import inf

from btb.traces.audit.live import Live

EVENT_SIZES = (8, 20)
"""Arrivals of one prefix within a window that make it a burst event, small and large."""


class _Recent:
    """What is kept of one prefix: its times within the window, and where its last events ended."""

    __slots__ = ("ended_s", "times_s")

    def __init__(self) -> None:
        self.times_s: deque[float] = deque()
        self.ended_s = dict.fromkeys(EVENT_SIZES, -inf)


class FanOut:
    """Largest number of arrivals of one prefix within any `window_s` seconds, and burst events.

    A window holds both its ends: arrivals at 0 s and at 60 s are both within 60 s. That is the
    convention under which Mooncake's conversation trace has 263 (half-open windows have 260).
    Overlapping windows of one prefix that hold at least so many arrivals are one event.

    Prefixes that have been quiet for a window are forgotten, so memory is that of one window.

    Examples
    --------
    >>> seen = FanOut(window_s=10.0)
    >>> for at_s in (0.0, 9.0, 10.0, 30.0):
    ...     seen.add(7, at_s)
    >>> seen.largest
    3
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self.largest = 0
        self.events = dict.fromkeys(EVENT_SIZES, 0)
        self.prefixes = dict.fromkeys(EVENT_SIZES, 0)
        self._live = Live[_Recent](lambda recent: recent.times_s[-1], quiet_s=window_s)
        self._burst: dict[int, set[int]] = {size: set() for size in EVENT_SIZES}

    @property
    def live(self) -> int:
        """Prefixes in memory."""
        return len(self._live)

    def add(self, key: int, at_s: float) -> None:
        """Take in one arrival of prefix `key`. `at_s` never goes back within a trace."""
        recent = self._live.get(key)
        if recent is None:
            recent = self._live[key] = _Recent()
        times_s = recent.times_s
        times_s.append(at_s)
        while times_s[0] < at_s - self.window_s:
            times_s.popleft()
        count = len(times_s)
        self.largest = max(self.largest, count)
        if count >= EVENT_SIZES[0]:
            self._note_events(key, recent)
        self._live.take_quiet(at_s)

    def end_trace(self) -> None:
        """Forget what is live: the next arrival belongs to another trace."""
        self._live.clear()
        for size, keys in self._burst.items():
            self.prefixes[size] += len(keys)
            keys.clear()

    def _note_events(self, key: int, recent: _Recent) -> None:
        for size in EVENT_SIZES:
            if len(recent.times_s) < size:
                return
            if recent.times_s[0] > recent.ended_s[size]:
                self.events[size] += 1
                self._burst[size].add(key)
            recent.ended_s[size] = recent.times_s[-1]
