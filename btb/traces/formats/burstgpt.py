"""BurstGPT: CSV of times and lengths, nothing on the prompts."""

from collections.abc import Sequence

from btb.traces.fields import digits, label, whole
from btb.traces.format import Format, Reading
from btb.traces.formats.lengths import lengths_only
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival


class Burstgpt(Format):
    """Reader of BurstGPT CSV; its third edition names sessions."""

    name = "burstgpt"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has BurstGPT's columns."""
        return {"Timestamp", "Request tokens", "Response tokens"} <= row.keys()

    def reading(self, _: Source, __: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it."""
        return lengths_only(_parse, options)


def _parse(row: Row, block_tokens: int) -> Arrival:
    return Arrival(
        at_s=digits(row, "Timestamp"),
        chain=(),
        block_tokens=block_tokens,
        input_tokens=whole(row, "Request tokens"),
        output_tokens=whole(row, "Response tokens"),
        session=label(row, "Session ID"),
    )
