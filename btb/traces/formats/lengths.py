"""What formats have in common that give times and lengths only, and nothing on the prompts."""

from collections.abc import Callable

from btb.traces.format import Reading, sorted_by_time
from btb.traces.options import ReaderOptions
from btb.traces.records import Row
from forecasting.arrival import Arrival

BLOCK_TOKENS = 512
SORT_WINDOW_S = 60.0
NO_PREFIXES = "no prefixes in this format: rate models only"


def lengths_only(parse: Callable[[Row, int], Arrival], options: ReaderOptions) -> Reading[Arrival]:
    """Return how to read rows that `parse`, given a row and a block size, makes arrivals of."""
    block_tokens = options.block_tokens or BLOCK_TOKENS
    return Reading(
        block_tokens,
        parser=lambda: lambda row: parse(row, block_tokens),
        lay=sorted_by_time(SORT_WINDOW_S, options),
        has_prefixes=False,
        notes=(NO_PREFIXES,),
    )
