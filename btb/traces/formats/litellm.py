"""LiteLLM's records: rows of its spend log (JSON or CSV), and payloads of its logging callbacks.

Prompts are known only where `messages` were stored; the spend log usually leaves them out. The
team, else the API key (a hash), is the tenant. Embeddings, images, speech and answers out of
LiteLLM's own cache never reach a replica and are passed over.
"""

from collections.abc import Sequence
from typing import Any

from btb.traces.fields import label, moment, seconds, whole
from btb.traces.format import Format, Reading, sorted_by_time
from btb.traces.hashing import root, text_tokens
from btb.traces.options import ReaderOptions
from btb.traces.prompts import has_content, messages_text, prompt_chain
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

BLOCK_TOKENS = 64
SORT_WINDOW_S = 600.0
"""A row is written once its request has ended, and few take more than ten minutes."""

OTHER_CALLS = ("embedding", "image", "moderation", "rerank", "speech", "transcription")
NO_MESSAGES = "no messages stored: rate models only"


class Litellm(Format):
    """Reader of LiteLLM's records."""

    name = "litellm"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has LiteLLM's type of call and time."""
        return {"call_type", "startTime"} <= row.keys()

    def reading(self, _: Source, head: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it."""
        block_tokens = options.block_tokens or BLOCK_TOKENS
        stored = any(has_content(row.get("messages")) for row in head)
        return Reading(
            block_tokens,
            parser=lambda: lambda row: _arrival(row, block_tokens),
            lay=sorted_by_time(SORT_WINDOW_S, options),
            has_prefixes=stored,
            notes=() if stored else (NO_MESSAGES,),
        )


def _arrival(row: Row, block_tokens: int) -> Arrival | None:
    kind = label(row, "call_type")
    if any(other in kind for other in OTHER_CALLS) or _is_true(row.get("cache_hit")):
        return None
    parameters = row.get("model_parameters")
    tools = parameters.get("tools") if isinstance(parameters, dict) else None
    messages = messages_text(row.get("messages"))
    content = messages_text(tools) + messages if messages else ""
    tenant = _tenant(row)
    given = whole(row, "prompt_tokens", 0)
    start = root(block_tokens, tenant=tenant, model=label(row, "model"))
    return Arrival(
        at_s=_start_s(row),
        chain=prompt_chain(content, block_tokens, start, given or None),
        block_tokens=block_tokens,
        input_tokens=given or text_tokens(content),
        output_tokens=whole(row, "completion_tokens", 1),
        tenant=tenant,
        session=label(row, "session_id") or label(row, "trace_id"),
        request_id=label(row, "request_id") or label(row, "id"),
    )


def _tenant(row: Row) -> str:
    metadata: Any = row.get("metadata")
    inner: Row = metadata if isinstance(metadata, dict) else {}
    return (
        label(row, "team_id")
        or label(inner, "user_api_key_team_id")
        or label(row, "api_key")
        or label(inner, "user_api_key_hash")
    )


def _start_s(row: Row) -> float:
    given = row.get("startTime")
    return moment(row, "startTime") if isinstance(given, str) else seconds(row, "startTime")


def _is_true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")
