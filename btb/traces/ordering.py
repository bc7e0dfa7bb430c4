"""Arrivals in the order of time, from logs that are nearly so."""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from statistics import median

from btb.errors import TraceError
from btb.traces.report import ReadReport
from forecasting.arrival import Arrival

MAX_HELD = 200_000
"""Arrivals that wait at most, so that a long window and a high rate cannot fill the memory."""

CHECK_FROM_ROWS = 1_000
"""Rows after which a share of bad or late ones is held against the limit while reading goes on."""

MAX_GAPS = 4_096
MIN_GAPS = 20
MIN_TICK_S = 0.05


def in_time_order(
    arrivals: Iterable[Arrival], window_s: float, report: ReadReport, max_late_share: float
) -> Iterator[Arrival]:
    """Yield `arrivals` sorted, holding each back for `window_s` seconds of trace time.

    What comes later than that is counted as late and left out: put anywhere else, it would make up
    a burst. Arrivals at the same time stay in the order they came in.

    Raises
    ------
    TraceError
        If more than `max_late_share` of them come too late.
    """
    held: list[tuple[float, int, Arrival]] = []
    newest_s = last_s = -inf
    number = 0
    for number, arrival in enumerate(arrivals, start=1):
        at_s = arrival.at_s
        if at_s < last_s:
            report.late += 1
            if number >= CHECK_FROM_ROWS:
                _check_late(report.late, number, window_s, max_late_share)
            continue
        if at_s < newest_s:
            report.reordered += 1
        newest_s = max(newest_s, at_s)
        heappush(held, (at_s, number, arrival))
        while held and (held[0][0] <= newest_s - window_s or len(held) > MAX_HELD):
            last_s, _, first = heappop(held)
            yield first
    _check_late(report.late, number, window_s, max_late_share)
    while held:
        yield heappop(held)[2]


def _check_late(late: int, rows: int, window_s: float, max_share: float) -> None:
    if late > max_share * rows:
        raise TraceError(
            f"{late:,} of {rows:,} rows come too late to be sorted in: more than {window_s:g} s "
            f"after a later one, or over {MAX_HELD:,} rows after it. Allowed are {max_share:.3g} "
            "of them (max_bad_share); a larger sort_window_s may help"
        )


class Ticks:
    """Finds out whether a clock moves in steps, as Mooncake's does, every 3 s.

    Looks at the gaps between different times. If nearly all are whole multiples of the smallest,
    that is the step. Times that are merely close together are on no such grid.
    """

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._gaps_s: list[float] = []

    def see(self, at_s: float) -> None:
        """Take in the time of the next arrival, never earlier than the one before."""
        if len(self._gaps_s) >= MAX_GAPS:
            return
        if self._last_s is not None and at_s > self._last_s:
            self._gaps_s.append(at_s - self._last_s)
        self._last_s = at_s

    def step_s(self) -> float | None:
        """Return the step in seconds, or None where there is none to be seen."""
        gaps_s = self._gaps_s
        if len(gaps_s) < MIN_GAPS or min(gaps_s) < MIN_TICK_S:
            return None
        smallest_s = min(gaps_s)
        step_s = median(gap_s for gap_s in gaps_s if gap_s < 1.5 * smallest_s)
        tolerance_s = 0.002 + 0.01 * step_s
        on_grid = sum(
            abs(gap_s - round(gap_s / step_s) * step_s) <= tolerance_s for gap_s in gaps_s
        )
        return step_s if on_grid >= 0.98 * len(gaps_s) else None
