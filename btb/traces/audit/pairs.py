"""Whether two arrivals of a prefix foretell more: what a fixed rule that fires at two is worth."""

from dataclasses import dataclass
from math import inf

from btb.traces.audit.live import Live

GAP_S = 10.0
"""Two arrivals at most this far apart are a trigger."""

AHEAD_S = 30.0
"""Time after a trigger in which more must come; no trigger of the prefix counts meanwhile."""

MORE = 4
"""Arrivals that must follow for a trigger to have been right."""

COLD_S = 60.0
"""A trigger is cold where the prefix had no arrival for so long before the pair."""


@dataclass(slots=True)
class Pairs:
    """Triggers of one depth: how many, how many were right, and the same of cold ones."""

    triggers: int = 0
    positive: int = 0
    cold: int = 0
    cold_positive: int = 0
    prefixes: int = 0
    positive_prefixes: int = 0


class _Watched:
    """What is kept of one prefix.

    `first_s` and `quiet_s` are the time of an arrival that may open a pair and the silence before
    it, `last_s` the latest arrival, `fired_s` the trigger being watched and `more` what followed.
    """

    __slots__ = ("cold", "fired_s", "first_s", "last_s", "more", "quiet_s")

    def __init__(self) -> None:
        self.first_s = -inf
        self.quiet_s = inf
        self.last_s = -inf
        self.fired_s = -inf
        self.more = 0
        self.cold = False


class PairCounter:
    """Counts triggers: the second of two arrivals of a prefix at most 10 s apart.

    After a trigger the prefix is silent for 30 s, the end included; both arrivals of the next pair
    come after that. Positive: 4 or more arrivals in those 30 s. Cold: none in the 60 s before the
    pair. A trigger with less than 30 s of trace after it is left out.

    Examples
    --------
    >>> counter = PairCounter()
    >>> for at_s in (0.0, 5.0, 6.0, 7.0, 8.0, 9.0, 40.0):
    ...     counter.add(7, at_s)
    >>> counter.end_trace(end_s=40.0)
    >>> counter.found
    Pairs(triggers=1, positive=1, cold=1, cold_positive=1, prefixes=1, positive_prefixes=1)
    """

    def __init__(self) -> None:
        self.found = Pairs()
        self._live = Live[_Watched](lambda watched: watched.last_s, quiet_s=COLD_S)
        self._triggered: set[int] = set()
        self._positive: set[int] = set()

    def add(self, key: int, at_s: float) -> None:
        """Take in one arrival of prefix `key`. `at_s` never goes back within a trace."""
        watched = self._live.get(key)
        if watched is None:
            watched = self._live[key] = _Watched()
        if at_s <= watched.fired_s + AHEAD_S:
            watched.more += 1
        else:
            self._settle(key, watched)
            if at_s - watched.first_s <= GAP_S:
                watched.fired_s, watched.more = at_s, 0
                watched.cold = watched.quiet_s > COLD_S
                watched.first_s = -inf
            else:
                watched.first_s, watched.quiet_s = at_s, at_s - watched.last_s
        watched.last_s = at_s
        for quiet, kept in self._live.take_quiet(at_s):
            self._settle(quiet, kept)

    def end_trace(self, end_s: float) -> None:
        """Count what is still open. `end_s` is the time of the trace's last arrival."""
        for key, watched in self._live.items():
            if watched.fired_s + AHEAD_S <= end_s:
                self._settle(key, watched)
        self._live.clear()
        self.found.prefixes += len(self._triggered)
        self.found.positive_prefixes += len(self._positive)
        self._triggered.clear()
        self._positive.clear()

    def _settle(self, key: int, watched: _Watched) -> None:
        if watched.fired_s == -inf:
            return
        right = watched.more >= MORE
        self.found.triggers += 1
        self.found.positive += right
        self.found.cold += watched.cold
        self.found.cold_positive += right and watched.cold
        self._triggered.add(key)
        if right:
            self._positive.add(key)
        watched.fired_s = -inf
