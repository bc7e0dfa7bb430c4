"""ART-Chat and Bursted-ART: 256-token blocks, JSON lines or Parquet.

`hash_ids` name blocks one by one, as numbers or as strings, so they are chained here. Bursted-ART
counts in seconds (`arrival_s`) and keeps several windows in a file, told apart by `trace_id`;
ART-Chat counts in milliseconds of its day (`timestamp`).
"""

from collections.abc import Sequence
from dataclasses import replace

from btb.traces.fields import block_ids, label, seconds, whole
from btb.traces.format import Format, Parse, Reading, sorted_by_time
from btb.traces.hashing import chained, root
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

BLOCK_TOKENS = 256
SORT_WINDOW_S = 60.0
NAMELESS = "rest"
"""Stands for the `trace_id` of rows that have none, in a file where others do."""


class Art(Format):
    """Reader of ART-Chat and Bursted-ART."""

    name = "art"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has block ids and a field that only ART has beside them."""
        own = {"trace_id", "arrival_s", "system_prompt_hash"}
        return "hash_ids" in row and not own.isdisjoint(row)

    def reading(self, source: Source, _: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it, narrowed to one `trace_id` if the source is."""
        block_tokens = options.block_tokens or BLOCK_TOKENS
        return Reading(
            block_tokens,
            parser=lambda: _parser(block_tokens, source.part),
            lay=sorted_by_time(SORT_WINDOW_S, options),
        )

    def windows(self, source: Source) -> list[Source]:
        """Return one source for each `trace_id`, in the order that they begin."""
        rows = (record.row for record in source.records() if record.row is not None)
        if "trace_id" not in next(rows, {}):
            return [source]
        spans: dict[str, tuple[int, int]] = {}
        for record in source.records():
            if record.row is not None:
                trace_id = _trace_id(record.row)
                spans[trace_id] = (spans.get(trace_id, (record.line, 0))[0], record.line)
        if len(spans) < 2:
            return [source]
        return [
            replace(source, name=f"{source.name}/{trace_id}", part=trace_id, span=span)
            for trace_id, span in spans.items()
        ]


def _trace_id(row: Row) -> str:
    return str(row.get("trace_id") or NAMELESS)


def _parser(block_tokens: int, part: str) -> Parse[Arrival]:
    start = root(block_tokens)

    def parse(row: Row) -> Arrival | None:
        if part and _trace_id(row) != part:
            return None
        return Arrival(
            at_s=_at_s(row),
            chain=chained(block_ids(row, "hash_ids"), start),
            block_tokens=block_tokens,
            input_tokens=whole(row, "input_length"),
            output_tokens=whole(row, "output_length", 1),
            session=label(row, "session_id"),
            request_id=label(row, "request_id"),
        )

    return parse


def _at_s(row: Row) -> float:
    if row.get("arrival_s") is not None:
        return seconds(row, "arrival_s")
    field = "timestamp_ms" if row.get("timestamp_ms") is not None else "timestamp"
    return seconds(row, field, unit_s=0.001)
