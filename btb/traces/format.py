"""What a log format says about itself; one file and one registry line make a new one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from btb.traces.options import ReaderOptions
from btb.traces.ordering import in_time_order
from btb.traces.records import Row, Source
from btb.traces.report import ReadReport
from forecasting.arrival import Arrival

Item = TypeVar("Item")

Parse = Callable[[Row], Item | None]
"""Makes something of a row, or None of one that is no request. Raises BadField for a bad one."""

Split = Callable[[Row], Iterable[Row]]
"""Takes a row apart that holds several."""

Lay = Callable[[Iterator[Item], ReadReport], Iterator[Arrival]]
"""Puts what was made of the rows in the order of time."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[Item]):
    """How the rows of one trace become arrivals.

    `parser` makes a parser for one pass, so that two passes at a time don't share what it
    remembers. `lay` brings what it returns into the order of time. `notes` go into each report.
    `split`, where given, takes each row apart first.
    """

    block_tokens: int
    parser: Callable[[], Parse[Item]]
    lay: Lay[Item]
    has_prefixes: bool = True
    notes: tuple[str, ...] = ()
    split: Split | None = None


class Format(Protocol):
    """A log format: how to know it, and how to read it. It has no state.

    Formats inherit from this, for the defaults.
    """

    name: str
    joins: str = ""
    """Extension of the files that together are one trace, where a folder holds several of them."""

    def matches(self, row: Row) -> bool:
        """Return whether `row`, one of a file's first, is of this format."""
        ...

    def reading(self, source: Source, head: Sequence[Row], options: ReaderOptions) -> Reading[Any]:
        """Return how to read `source`, whose first good rows are `head`.

        Raises
        ------
        TraceError
            If something that the format needs is missing.
        """
        ...

    def windows(self, source: Source) -> list[Source]:
        """Return the windows of a file; more than one where it holds several traces."""
        return [source]


def sorted_by_time(default_window_s: float, options: ReaderOptions) -> Lay[Arrival]:
    """Return a `lay` for formats where each row is one request with a time of its own."""
    window_s = default_window_s if options.sort_window_s is None else options.sort_window_s

    def lay(arrivals: Iterator[Arrival], report: ReadReport) -> Iterator[Arrival]:
        return in_time_order(arrivals, window_s, report, options.max_bad_share)

    return lay
