"""From files to traces: which format they are, and how they are read."""

from collections.abc import Sequence
from difflib import get_close_matches
from itertools import islice

from btb.errors import ConfigError, TraceError
from btb.traces.format import Format
from btb.traces.formats import FORMATS
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from btb.traces.trace import Trace

HEAD_ROWS = 64
"""Rows that are looked at to find out about a trace."""


def find_format(name: str) -> Format:
    """Return the format called `name`.

    Raises
    ------
    ConfigError
        If there is none; the message names the nearest one.
    """
    if name in FORMATS:
        return FORMATS[name]
    near = get_close_matches(name, FORMATS, n=1, cutoff=0.0)
    raise ConfigError(
        f"no trace format is called {name!r}; did you mean {near[0]!r}? "
        f"Known are {', '.join(sorted(FORMATS))}"
    )


def read_head(source: Source) -> list[Row]:
    """Return the first good rows of `source`."""
    rows = (record.row for record in islice(source.records(), HEAD_ROWS))
    return [row for row in rows if row is not None]


def guess_format(head: Sequence[Row]) -> Format | None:
    """Return the first format that most rows of `head` fit, or None."""
    for one in FORMATS.values():
        if 2 * sum(map(one.matches, head)) > len(head):
            return one
    return None


def make_traces(
    source: Source,
    fmt: str | None,
    options: ReaderOptions,
    *,
    whole: bool,
    notes: tuple[str, ...] = (),
) -> list[Trace]:
    """Return the traces in `source`, of the format called `fmt` or the one that its rows fit.

    `whole` reads a source that holds several traces as one.

    Raises
    ------
    ConfigError
        If no format is called `fmt`.
    TraceError
        If the files can't be read or fit no format.
    """
    asked = find_format(fmt) if fmt else None
    head = read_head(source)
    chosen = asked or guess_format(head)
    if chosen is None:
        what = f"its first row has {_names(head[0])}" if head else "it has no readable row"
        raise TraceError(
            f"{source.name}: no known trace format ({what}); known are "
            f"{', '.join(sorted(FORMATS))}, and one of them can be asked for by name"
        )
    parts = [source] if whole else chosen.windows(source)
    return [
        Trace(part, chosen.name, chosen.reading(part, head, options), options, notes)
        for part in parts
    ]


def _names(row: Row) -> str:
    names = ", ".join(map(str, islice(row, 8)))
    return f"the fields {names}" if names else "no fields"
