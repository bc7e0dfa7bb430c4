"""Bursts from cold: the ones that having copies ready in time can help."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from btb.traces.audit.live import Live
from forecasting.arrival import Arrival


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What counts as a burst that btb could help, and how much of it is worth the trouble.

    Parameters
    ----------
    prefix_tokens
        Shorter prefixes are computed about as fast as they are copied.
    arrivals, within_s
        So many arrivals of the prefix in so many seconds: more than one replica should serve.
    quiet_s
        No arrival for so long before it, else its KV is on several replicas already.
    start_s
        A prefix first seen this early in a trace may have been in use before it.
    sessions
        Arrivals must come from so many sessions, where the trace names them. One agent's steps
        come one after the other, and one replica serves them.
    within_burst_s
        Arrivals later than this after the first no longer count: the prefix is everywhere by then.
    share
        Least share of input tokens behind such bursts for the answer to be yes.
    """

    prefix_tokens: int = 2_048
    arrivals: int = 20
    within_s: float = 60.0
    quiet_s: float = 60.0
    start_s: float = 10.0
    sessions: int = 4
    within_burst_s: float = 600.0
    share: float = 0.01


@dataclass(slots=True)
class Onsets:
    """Bursts of one depth, and what is behind them.

    `cold` bursts began in silence, `tokens` are those of the prefix in all their requests but the
    first. `running` ones were under way when the trace began, `serial` ones are of a few sessions.
    """

    cold: int = 0
    tokens: int = 0
    running: int = 0
    serial: int = 0


class _Run:
    """Arrivals of one prefix without a long silence between them."""

    __slots__ = ("chain", "count", "dense", "first_s", "last_s", "named", "recent_s", "sessions")

    def __init__(self, arrival: Arrival, dense: int) -> None:
        self.first_s = arrival.at_s
        self.last_s = arrival.at_s
        self.chain: Sequence[int] = arrival.chain
        self.count = 0
        self.dense = False
        self.named = True
        self.recent_s: deque[float] = deque(maxlen=dense)
        self.sessions: set[str] = set()


class OnsetCounter:
    """Follows each prefix of one depth from silence to silence, and says what kind of burst it was.

    The prefix that the requests of a burst have in common is found as they come: at least the
    depth asked for, often more.
    """

    def __init__(self, limits: Thresholds) -> None:
        self.found = Onsets()
        self._limits = limits
        self._live = Live[_Run](lambda run: run.last_s, quiet_s=limits.quiet_s)

    def add(self, key: int, arrival: Arrival) -> None:
        """Take in one arrival of prefix `key`. Times never go back within a trace."""
        limits, at_s = self._limits, arrival.at_s
        run = self._live.get(key)
        if run is not None and at_s - run.last_s > limits.quiet_s:
            self._settle(run, arrival.block_tokens)
            run = None
        if run is None:
            run = self._live[key] = _Run(arrival, limits.arrivals)
        run.last_s = at_s
        if at_s - run.first_s <= limits.within_burst_s:
            self._grow(run, arrival)
        for _, quiet in self._live.take_quiet(at_s):
            self._settle(quiet, arrival.block_tokens)

    def end_trace(self, block_tokens: int) -> None:
        """Settle what is still open. The next arrival belongs to another trace."""
        for run in self._live.values():
            self._settle(run, block_tokens)
        self._live.clear()

    def _grow(self, run: _Run, arrival: Arrival) -> None:
        run.count += 1
        run.recent_s.append(arrival.at_s)
        full = len(run.recent_s) == self._limits.arrivals
        if full and arrival.at_s - run.recent_s[0] <= self._limits.within_s:
            run.dense = True
        if arrival.chain[: len(run.chain)] != run.chain:
            run.chain = run.chain[: common(run.chain, arrival.chain)]
        run.named = run.named and bool(arrival.session)
        if run.named and len(run.sessions) < self._limits.sessions:
            run.sessions.add(arrival.session)

    def _settle(self, run: _Run, block_tokens: int) -> None:
        if not run.dense:
            return
        if run.named and len(run.sessions) < self._limits.sessions:
            self.found.serial += 1
        elif run.first_s < self._limits.start_s:
            self.found.running += 1
        else:
            self.found.cold += 1
            self.found.tokens += (run.count - 1) * len(run.chain) * block_tokens


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many leading blocks two chains share. Ids are cumulative, so it bisects.

    >>> common((1, 2, 3), (1, 2, 4, 5))
    2
    """
    most = min(len(one), len(other))
    return bisect_left(range(most), True, key=lambda k: one[k] != other[k])
