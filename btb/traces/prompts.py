"""Prompts that a log holds as text or messages, as chains.

Nobody's chat template is known here, so messages are written out as JSON, tools first, one message
after the other: a conversation that goes on has the earlier one as its prefix, and two that differ
in anything (an image, a tool's answer) part there. Text is cut into pieces of 4 characters a token,
which is an assumption; see `hashing`.
"""

import json

from btb.traces.fields import BadField
from btb.traces.hashing import chained, text_blocks


def prompt_chain(
    content: str, block_tokens: int, start: int, input_tokens: int | None = None
) -> tuple[int, ...]:
    """Return the chain of `content`, no longer than `input_tokens`, where these are known."""
    chain = chained(text_blocks(content, block_tokens), start)
    return chain if input_tokens is None else chain[: input_tokens // block_tokens]


def messages_text(*parts: object) -> str:
    """Return messages, tools and instructions written out, in this order.

    A part that is text holding a JSON list or object is read as such first, as databases and spans
    store it; other text goes in as it is. Parts that are empty or missing add nothing.

    >>> messages_text(None, [{"role": "user", "content": "hi"}], "{}")
    '{"content":"hi","role":"user"}'
    """
    return "".join(_written(one) for part in parts for one in _items(part))


def has_content(part: object) -> bool:
    """Return whether `messages_text` of `part` is more than nothing."""
    return bool(_items(part))


def _items(part: object) -> list[object]:
    if isinstance(part, str) and part[:1] in {"[", "{"}:
        try:
            part = json.loads(part)
        except (ValueError, RecursionError):
            return [part]
    if not part:
        return []
    return part if isinstance(part, list) else [part]


def _written(one: object) -> str:
    if isinstance(one, str):
        return one
    try:
        return json.dumps(
            one, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str
        )
    except RecursionError:
        raise BadField("messages", "less deeply nested values") from None
