"""Mooncake's JSON lines, which our own generator writes too.

`timestamp` in milliseconds, `input_length` and `output_length` in tokens, `hash_ids` of blocks.
The ids are chained already (checked over 430,063 block references of three files: none has two
predecessors), so they are kept as they are. `session_id` and `tenant` are ours.
"""

from collections.abc import Sequence

from btb.traces.fields import BadField, block_ids, label, seconds, whole
from btb.traces.format import Format, Parse, Reading, sorted_by_time
from btb.traces.hashing import chained, root
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

SORT_WINDOW_S = 60.0
BLOCK_TOKENS = 512
USUAL_BLOCK_TOKENS = (512, 256, 128, 64, 32, 16)
UNKNOWN_SIZE = "the size of a block is not given and does not follow from the lengths"
FOREIGN = frozenset(
    ("block_size", "chat_id", "delay", "messages", "payload", "text_input", "trace_id")
)
"""Fields that other formats have beside the same ones."""


class Mooncake(Format):
    """Reader of Mooncake JSON lines."""

    name = "mooncake"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has Mooncake's four fields and none of its variants'."""
        needed = {"timestamp", "input_length", "output_length", "hash_ids"} <= row.keys()
        return needed and isinstance(row["hash_ids"], list) and FOREIGN.isdisjoint(row)

    def reading(self, _: Source, head: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it; rows name no block size, so it follows from their lengths."""
        guessed = options.block_tokens or guess_block_tokens(head)
        block_tokens = guessed or BLOCK_TOKENS
        return Reading(
            block_tokens,
            parser=lambda: parser(block_tokens),
            lay=sorted_by_time(SORT_WINDOW_S, options),
            notes=() if guessed else (f"{UNKNOWN_SIZE}: taken for {BLOCK_TOKENS} tokens",),
        )


def guess_block_tokens(head: Sequence[Row]) -> int | None:
    """Return the one usual block size that fits the lengths of `head`, or None.

    It fits where every row has ceil(input / size) ids, or, if that is so for no size, where every
    row has as many as it has whole blocks.

    >>> guess_block_tokens([{"input_length": 600, "hash_ids": [0, 1, 2]}])
    256
    >>> guess_block_tokens([{"input_length": 600, "hash_ids": [0, 1]}])
    512
    >>> guess_block_tokens([{"input_length": 16, "hash_ids": [0]}])  # all of them fit
    """
    lengths = [
        (row["input_length"], len(row["hash_ids"]))
        for row in head
        if isinstance(row.get("input_length"), int) and isinstance(row.get("hash_ids"), list)
    ]
    for partial in (1, 0):  # with the last, partial block, or whole blocks only
        fitting = [
            size
            for size in USUAL_BLOCK_TOKENS
            if all(blocks == (tokens + partial * (size - 1)) // size for tokens, blocks in lengths)
        ]
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return None


def parser(block_tokens: int) -> Parse[Arrival]:
    """Return a parser of rows with blocks of `block_tokens`."""

    def parse(row: Row) -> Arrival:
        ids, input_tokens = block_ids(row, "hash_ids"), whole(row, "input_length")
        most = -(-input_tokens // block_tokens)
        if len(ids) > most:
            expected = f"at most {most} ids for {input_tokens} tokens in blocks of {block_tokens}"
            raise BadField("hash_ids", f"{expected}, got {len(ids)}")
        tenant = label(row, "tenant")
        return Arrival(
            at_s=seconds(row, "timestamp", unit_s=0.001),
            chain=chained(ids, root(block_tokens, tenant=tenant)) if tenant else tuple(ids),
            block_tokens=block_tokens,
            input_tokens=input_tokens,
            output_tokens=whole(row, "output_length", 1),
            tenant=tenant,
            session=label(row, "session_id"),
        )

    return parse
