"""Qwen-Bailian traces of Alibaba: 16-token blocks, time in seconds.

`hash_ids` name blocks by content (a salted hash of each block alone), so they are chained here.
`chat_id` and `parent_chat_id` link the turns of a conversation; the session is its first chat.
"""

from collections import OrderedDict
from collections.abc import Sequence

from btb.traces.fields import block_ids, label, seconds, whole
from btb.traces.format import Format, Parse, Reading, sorted_by_time
from btb.traces.hashing import chained, root
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

BLOCK_TOKENS = 16
SORT_WINDOW_S = 60.0
MAX_CHATS = 200_000
"""Chats whose root is remembered; the oldest are forgotten past this."""


class Bailian(Format):
    """Reader of Qwen-Bailian JSON lines."""

    name = "bailian"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has chats and block ids."""
        return {"chat_id", "parent_chat_id", "hash_ids"} <= row.keys()

    def reading(self, _: Source, __: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it."""
        block_tokens = options.block_tokens or BLOCK_TOKENS
        return Reading(
            block_tokens,
            parser=lambda: _parser(block_tokens),
            lay=sorted_by_time(SORT_WINDOW_S, options),
        )


def _parser(block_tokens: int) -> Parse[Arrival]:
    start = root(block_tokens)
    roots: OrderedDict[str, str] = OrderedDict()

    def parse(row: Row) -> Arrival:
        chat, parent = label(row, "chat_id"), label(row, "parent_chat_id")
        session = roots.get(parent, chat if parent in {"", "-1"} else parent)
        roots[chat] = session
        if len(roots) > MAX_CHATS:
            roots.popitem(last=False)
        return Arrival(
            at_s=seconds(row, "timestamp"),
            chain=chained(block_ids(row, "hash_ids"), start),
            block_tokens=block_tokens,
            input_tokens=whole(row, "input_length"),
            output_tokens=whole(row, "output_length", 1),
            session=session,
            request_id=chat,
        )

    return parse
