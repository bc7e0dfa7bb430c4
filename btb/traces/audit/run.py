"""Audit traces, each in one pass and in bounded memory."""

from collections.abc import Callable, Iterable, Sequence

from btb.errors import ConfigError, TraceError
from btb.traces.audit.depth import DepthCounter
from btb.traces.audit.fan_out import FanOut
from btb.traces.audit.onsets import Thresholds
from btb.traces.audit.result import Audit
from btb.traces.audit.reuse import ReuseCounter
from btb.traces.audit.verdict import NO_PREFIXES, judge
from btb.traces.trace import Trace
from forecasting.arrival import Arrival

DEPTHS_TOKENS = (512, 2_048, 8_192, 16_384, 32_768)
WINDOWS_S = (1.0, 10.0, 60.0)
SAME_TIME_S = 0.0
"""The window that holds arrivals at one time only: one tick of a clock that ticks."""

EVERY_ROWS = 1_000
"""Rows between two calls of `on_rows`."""


class Auditor:
    """Takes in one trace after the other, and sums up. Nothing is carried from one to the next.

    Parameters
    ----------
    block_tokens
        Block size of all the traces.
    has_prefixes
        Whether chains are known. Where not, only rates are counted.
    depths_tokens, windows_s
        What to look at. The depth of `limits.prefix_tokens` is always looked at as well, for the
        verdict needs it.
    limits
        What counts as a burst that btb could help.

    Raises
    ------
    ConfigError
        If a depth or a window is not positive.
    """

    def __init__(
        self,
        block_tokens: int,
        *,
        has_prefixes: bool = True,
        depths_tokens: Sequence[int] = DEPTHS_TOKENS,
        windows_s: Sequence[float] = WINDOWS_S,
        limits: Thresholds = Thresholds(),  # noqa: B008  (frozen)
    ) -> None:
        for value in (*depths_tokens, *windows_s):
            if not value > 0:
                raise ConfigError(f"depths and windows must be positive, got {value!r}")
        self._limits = limits
        self._windows_s = (SAME_TIME_S, *sorted(set(windows_s)))
        self._block_tokens = block_tokens
        self._traces = self._requests = self._input_tokens = 0
        self._span_s = 0.0
        self._rates = [FanOut(window_s) for window_s in self._windows_s]
        self._reuse = ReuseCounter() if has_prefixes else None
        self._depths: dict[int, DepthCounter] = {}
        for asked in sorted({*depths_tokens, limits.prefix_tokens}) if has_prefixes else ():
            depth = DepthCounter(asked, block_tokens, self._windows_s, limits)
            self._depths.setdefault(depth.tokens, depth)

    def add_trace(
        self, arrivals: Iterable[Arrival], on_rows: Callable[[int], None] = lambda _: None
    ) -> None:
        """Take in one trace, in order of time. `on_rows` is told about rows as they are read."""
        first_s = last_s = None
        unreported = 0
        for arrival in arrivals:
            first_s = arrival.at_s if first_s is None else first_s
            last_s = arrival.at_s
            self._add(arrival)
            unreported += 1
            if unreported == EVERY_ROWS:
                on_rows(unreported)
                unreported = 0
        on_rows(unreported)
        self._traces += 1
        if first_s is not None and last_s is not None:
            self._span_s += last_s - first_s
            self._end_trace(last_s)

    def result(self, name: str, *, tick_s: float | None = None, notes: Iterable[str] = ()) -> Audit:
        """Return all figures.

        Windows shorter than `tick_s`, the clock's step, are left out: what happened within a step
        is not known. Arrivals at one time, so within one step, stand in their place.
        """
        hidden_s = [one for one in self._windows_s if SAME_TIME_S < one < (tick_s or 0.0)]
        shown_s = [one for one in self._windows_s if one not in hidden_s]
        if not hidden_s:
            shown_s.remove(SAME_TIME_S)
        depths = tuple(depth.found(shown_s) for depth in self._depths.values())
        pays: bool | None = None
        verdict = NO_PREFIXES
        if self._reuse is not None:
            pays, verdict = judge(depths, self._input_tokens, self._limits)
        return Audit(
            name=name,
            traces=self._traces,
            requests=self._requests,
            input_tokens=self._input_tokens,
            span_s=self._span_s,
            block_tokens=self._block_tokens,
            has_prefixes=self._reuse is not None,
            tick_s=tick_s,
            peaks={one.window_s: one.largest for one in self._rates if one.window_s in shown_s},
            depths=depths,
            reuse=self._reuse.found if self._reuse else None,
            pays=pays,
            verdict=verdict,
            notes=tuple(notes),
        )

    def _add(self, arrival: Arrival) -> None:
        self._requests += 1
        self._input_tokens += arrival.input_tokens
        for rate in self._rates:
            rate.add(0, arrival.at_s)
        if self._reuse is not None:
            self._reuse.add(arrival)
            for depth in self._depths.values():
                depth.add(arrival)

    def _end_trace(self, end_s: float) -> None:
        for rate in self._rates:
            rate.end_trace()
        if self._reuse is not None:
            self._reuse.end_trace()
            for depth in self._depths.values():
                depth.end_trace(end_s)


def audit(
    name: str,
    traces: Sequence[Trace],
    *,
    depths_tokens: Sequence[int] = DEPTHS_TOKENS,
    windows_s: Sequence[float] = WINDOWS_S,
    limits: Thresholds = Thresholds(),  # noqa: B008  (frozen)
    on_rows: Callable[[int], None] = lambda _: None,
) -> Audit:
    """Return the audit of `traces`, windows of one whole that is called `name`.

    Raises
    ------
    ConfigError
        If a depth or a window is not positive.
    TraceError
        If a trace can't be read, or the traces differ in block size or in whether they have
        prefixes.
    """
    kinds = {(trace.block_tokens, trace.has_prefixes) for trace in traces}
    if len(kinds) != 1:
        raise TraceError(f"{name}: its windows differ in block size, audit them one by one")
    block_tokens, has_prefixes = kinds.pop()
    auditor = Auditor(
        block_tokens,
        has_prefixes=has_prefixes,
        depths_tokens=depths_tokens,
        windows_s=windows_s,
        limits=limits,
    )
    ticks_s: list[float] = []
    notes: dict[str, None] = {}
    for trace in traces:
        auditor.add_trace(trace, on_rows)
        ticks_s += [trace.report.tick_s] if trace.report.tick_s else []
        notes |= dict.fromkeys((*trace.report.notes, *_left_out(trace)))
    return auditor.result(name, tick_s=max(ticks_s, default=None), notes=notes)


def _left_out(trace: Trace) -> Iterable[str]:
    """Yield what is to be said of rows that could not be taken as they came."""
    report = trace.report
    if report.bad:
        yield f"{trace.name}: {report.bad:,} bad rows left out; {'; '.join(report.first_bad)}"
    if report.late:
        yield f"{trace.name}: {report.late:,} rows left out that came too late to be sorted in"
    if report.reordered:
        yield f"{trace.name}: {report.reordered:,} rows were out of order in time and sorted in"
