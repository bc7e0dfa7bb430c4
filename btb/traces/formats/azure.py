"""Azure's LLM inference traces: CSV of times and lengths, nothing on the prompts."""

from collections.abc import Sequence

from btb.traces.fields import moment, whole
from btb.traces.format import Format, Reading
from btb.traces.formats.lengths import lengths_only
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival


class Azure(Format):
    """Reader of Azure LLM inference CSV."""

    name = "azure"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has Azure's three columns."""
        return {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= row.keys()

    def reading(self, _: Source, __: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it; times without a zone are taken as UTC."""
        return lengths_only(_parse, options)


def _parse(row: Row, block_tokens: int) -> Arrival:
    return Arrival(
        at_s=moment(row, "TIMESTAMP"),
        chain=(),
        block_tokens=block_tokens,
        input_tokens=whole(row, "ContextTokens"),
        output_tokens=whole(row, "GeneratedTokens"),
    )
