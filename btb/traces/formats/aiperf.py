"""AIPerf's variants of Mooncake's JSON lines: sessions with delays, prompts as text or messages.

A row with a `timestamp` (ms) has a clock. One without is part of a closed loop, where the next turn
of a session comes `delay` ms after the answer to the last: it is laid on a clock by the delays
alone, as if answers took no time, so real gaps are longer. Such a session starts at a random time
within `start_spread_s`, drawn from `seed`.

The prompt is `hash_ids` beside `input_length`, `text_input`, `messages` (with `tools`), or
`payload`, a whole request body.
"""

from collections.abc import Sequence
from typing import Any

from btb.traces.fields import block_ids, label, mapping, seconds, text, whole
from btb.traces.format import Format, Parse, Reading, sorted_by_time
from btb.traces.formats.mooncake import BLOCK_TOKENS, guess_block_tokens
from btb.traces.hashing import root, text_tokens
from btb.traces.options import ReaderOptions
from btb.traces.prompts import messages_text, prompt_chain
from btb.traces.records import Row, Source
from btb.traces.sessions import start_s
from forecasting.arrival import Arrival

TEXT_BLOCK_TOKENS = 64
SORT_WINDOW_S = 60.0
LOOP_SORT_WINDOW_S = float("inf")
"""The turns of a session may stand together, far from others of the same time."""

PROMPTS = frozenset(("text_input", "messages", "payload"))
LOOPS = frozenset(("session_id", "delay"))
CLOSED_LOOP = "turns without a time are laid out by their delays, as if answers took no time"


class Aiperf(Format):
    """Reader of AIPerf's JSON lines."""

    name = "aiperf"

    def matches(self, row: Row) -> bool:
        """Return whether `row` holds a prompt as AIPerf does, or lengths of a session's turn."""
        if "block_size" in row:
            return False
        if "timestamp" in row or not LOOPS.isdisjoint(row):
            return not PROMPTS.isdisjoint(row) or "input_length" in row
        return "text_input" in row or "payload" in row

    def reading(self, _: Source, head: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it."""
        has_ids = any("hash_ids" in row for row in head)
        usual = (guess_block_tokens(head) or BLOCK_TOKENS) if has_ids else TEXT_BLOCK_TOKENS
        block_tokens = options.block_tokens or usual
        has_prefixes = has_ids or any(not PROMPTS.isdisjoint(row) for row in head)
        closed = any(row.get("timestamp") is None for row in head)
        notes = (CLOSED_LOOP,) if closed else ()
        return Reading(
            block_tokens,
            parser=lambda: _parser(block_tokens, options),
            lay=sorted_by_time(LOOP_SORT_WINDOW_S if closed else SORT_WINDOW_S, options),
            has_prefixes=has_prefixes,
            notes=notes if has_prefixes else (*notes, "no prompts in it: rate models only"),
        )


def _parser(block_tokens: int, options: ReaderOptions) -> Parse[Arrival]:
    start = root(block_tokens)
    last_s: dict[str, float] = {}
    rows = 0

    def parse(row: Row) -> Arrival:
        nonlocal rows
        rows += 1
        session = label(row, "session_id")
        name = session or f"row {rows}"
        if row.get("timestamp") is not None:
            at_s = seconds(row, "timestamp", unit_s=0.001)
        elif name not in last_s:
            at_s = start_s(name, options.start_spread_s, options.seed)
        else:
            at_s = last_s[name] + (seconds(row, "delay", unit_s=0.001) if row.get("delay") else 0.0)
        if session:
            last_s[name] = at_s
        chain, input_tokens = _prompt(row, block_tokens, start)
        return Arrival(
            at_s=at_s,
            chain=chain,
            block_tokens=block_tokens,
            input_tokens=input_tokens,
            output_tokens=whole(row, "output_length", 1),
            session=session,
        )

    return parse


def _prompt(row: Row, block_tokens: int, start: int) -> tuple[tuple[int, ...], int]:
    """Return chain and tokens of a row's prompt."""
    if row.get("hash_ids") is not None or PROMPTS.isdisjoint(row):
        ids = block_ids(row, "hash_ids") if row.get("hash_ids") is not None else []
        return tuple(ids), whole(row, "input_length")
    content = _content(row)
    tokens = whole(row, "input_length") if row.get("input_length") is not None else None
    chain = prompt_chain(content, block_tokens, start, tokens)
    return chain, text_tokens(content) if tokens is None else tokens


def _content(row: Row) -> str:
    if row.get("text_input") is not None:
        return text(row, "text_input")
    body: dict[str, Any] = dict(row) if row.get("payload") is None else mapping(row, "payload")
    return messages_text(body.get("tools"), body.get("messages"), body.get("prompt"))
