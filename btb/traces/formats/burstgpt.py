"""BurstGPT: CSV of times and lengths, nothing on the prompts."""

from collections.abc import Sequence

from btb.traces.fields import digits, label, whole
from btb.traces.format import Format, Reading, sorted_by_time
from btb.traces.formats.azure import NO_PREFIXES
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

BLOCK_TOKENS = 512
SORT_WINDOW_S = 60.0


class Burstgpt(Format):
    """Reader of BurstGPT CSV; its third edition names sessions."""

    name = "burstgpt"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has BurstGPT's columns."""
        return {"Timestamp", "Request tokens", "Response tokens"} <= row.keys()

    def reading(self, _: Source, __: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it."""
        block_tokens = options.block_tokens or BLOCK_TOKENS

        def parse(row: Row) -> Arrival:
            return Arrival(
                at_s=digits(row, "Timestamp"),
                chain=(),
                block_tokens=block_tokens,
                input_tokens=whole(row, "Request tokens"),
                output_tokens=whole(row, "Response tokens"),
                session=label(row, "Session ID"),
            )

        return Reading(
            block_tokens,
            parser=lambda: parse,
            lay=sorted_by_time(SORT_WINDOW_S, options),
            has_prefixes=False,
            notes=(NO_PREFIXES,),
        )
