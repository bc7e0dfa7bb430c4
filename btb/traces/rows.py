"""The loop over rows that all formats share: what is bad is counted, shown, and limited."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from btb.errors import TraceError
from btb.traces.fields import BadField
from btb.traces.format import Parse, Split
from btb.traces.ordering import CHECK_FROM_ROWS
from btb.traces.records import Record
from btb.traces.report import ReadReport

Item = TypeVar("Item")


def good_rows(
    records: Iterable[Record], parse: Parse[Item], report: ReadReport, max_bad_share: float
) -> Iterator[Item]:
    """Yield what `parse` makes of each good row.

    A last line that was cut off is counted and shown like any bad row, but does not count towards
    the limit: it is what a crash of the writer leaves behind.

    Raises
    ------
    TraceError
        If more than `max_bad_share` of the rows are bad, and the first 1,000 have been seen or
        there are no more.
    """
    good = torn = 0
    for record in records:
        try:
            if record.row is None:
                raise BadField("", record.problem)
            item = parse(record.row)
        except BadField as bad:
            report.add_bad(f"{record.where}: {bad}")
            torn += record.torn
            seen = good + report.bad - torn
            if seen >= CHECK_FROM_ROWS:
                _check(report, torn, seen, max_bad_share)
        else:
            if item is not None:
                good += 1
                yield item
    _check(report, torn, good + report.bad - torn, max_bad_share)


def split_rows(records: Iterable[Record], split: Split) -> Iterator[Record]:
    """Yield a record for each part of each row; those that can't be read stay as they are."""
    for record in records:
        if record.row is None:
            yield record
        else:
            for part in split(record.row):
                yield record._replace(row=part)


def _check(report: ReadReport, torn: int, seen: int, max_bad_share: float) -> None:
    bad = report.bad - torn
    if bad > max_bad_share * seen:
        shown = "\n  ".join(report.first_bad)
        raise TraceError(
            f"{bad:,} of {seen:,} rows are bad, more than the share of {max_bad_share:.3g} that is "
            f"allowed (max_bad_share). The first ones:\n  {shown}"
        )
