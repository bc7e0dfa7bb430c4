"""One trace: a request log that can be gone through again and again."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

from btb.errors import TraceError
from btb.traces.files import sha256
from btb.traces.format import Reading
from btb.traces.options import ReaderOptions
from btb.traces.ordering import Ticks
from btb.traces.records import Source
from btb.traces.report import ReadReport
from btb.traces.rows import good_rows, split_rows
from forecasting.arrival import Arrival


class Trace:
    """The arrivals of a log, in the order of time; the first is at 0 s.

    Each pass reads the files anew and holds no more than a window of them. `report` is filled by
    the pass that was started last, as far as it got.

    Parameters
    ----------
    source, fmt, reading, options
        Where the rows are, the name of their format, and how they are read. `open_trace` and
        `open_windows` find them.
    notes
        Sentences for the report of each pass.
    """

    def __init__(
        self,
        source: Source,
        fmt: str,
        reading: Reading[Any],
        options: ReaderOptions,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.name = source.name
        self.fmt = fmt
        self.block_tokens = reading.block_tokens
        self.has_prefixes = reading.has_prefixes
        self._source = source
        self._reading = reading
        self._options = options
        self._notes = (*reading.notes, *notes)
        self.report = ReadReport(notes=list(self._notes))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file; of the names and sums of several; of that and the part read."""
        sums = [sha256(path) for path in self._source.files]
        if len(sums) == 1 and not self._source.part:
            return sums[0]
        names = [path.name for path in self._source.files]
        framed = "\n".join([self._source.part, *map(" ".join, zip(sums, names, strict=True))])
        return hashlib.sha256(framed.encode()).hexdigest()

    def __iter__(self) -> Iterator[Arrival]:
        """Begin a pass.

        Raises
        ------
        TraceError
            While it goes on: if the files can't be read, too many rows are bad or too late, or
            there is no request at all.
        """
        self.report = ReadReport(notes=list(self._notes))
        return self._arrivals(self.report)

    def _arrivals(self, report: ReadReport) -> Iterator[Arrival]:
        parse, records = self._reading.parser(), self._source.records()
        if self._reading.split is not None:
            records = split_rows(records, self._reading.split)
        try:
            items = good_rows(records, parse, report, self._options.max_bad_share)
            yield from self._from_zero(self._reading.lay(items, report), report)
        except TraceError as error:
            raise TraceError(f"{self.name}: {error}") from error
        if report.rows == 0:
            raise TraceError(f"{self.name}: no request in it (read as {self.fmt})")

    def _from_zero(self, arrivals: Iterator[Arrival], report: ReadReport) -> Iterator[Arrival]:
        first_s: float | None = None
        ticks = Ticks()
        try:
            for arrival in arrivals:
                if first_s is None:
                    first_s = arrival.at_s
                if first_s:
                    arrival = replace(arrival, at_s=arrival.at_s - first_s)
                ticks.see(arrival.at_s)
                report.rows += 1
                yield arrival
        finally:
            report.tick_s = ticks.step_s()
            if report.tick_s:
                report.notes.append(f"clock ticks every {round(report.tick_s, 2)} s")
