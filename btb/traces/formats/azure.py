"""Azure's LLM inference traces: CSV of times and lengths, nothing on the prompts."""

from collections.abc import Sequence

from btb.traces.fields import moment, whole
from btb.traces.format import Format, Reading, sorted_by_time
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

BLOCK_TOKENS = 512
SORT_WINDOW_S = 60.0
NO_PREFIXES = "no prefixes in this format: rate models only"


class Azure(Format):
    """Reader of Azure LLM inference CSV."""

    name = "azure"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has Azure's three columns."""
        return {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= row.keys()

    def reading(self, _: Source, __: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it; times without a zone are taken as UTC."""
        block_tokens = options.block_tokens or BLOCK_TOKENS

        def parse(row: Row) -> Arrival:
            return Arrival(
                at_s=moment(row, "TIMESTAMP"),
                chain=(),
                block_tokens=block_tokens,
                input_tokens=whole(row, "ContextTokens"),
                output_tokens=whole(row, "GeneratedTokens"),
            )

        return Reading(
            block_tokens,
            parser=lambda: parse,
            lay=sorted_by_time(SORT_WINDOW_S, options),
            has_prefixes=False,
            notes=(NO_PREFIXES,),
        )
