"""OpenTelemetry spans of the GenAI conventions: OTLP in JSON, or flat spans, one object a line.

A request arrives at the start of its span; one recorded by a client starts before the server sees
it. Prompts are stored only where content was opted in (`gen_ai.input.messages` and others); without
them there are no prefixes. Spans of tools, embeddings and other things are passed over.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from btb.traces.fields import label, moment, whole
from btb.traces.format import Format, Reading, sorted_by_time
from btb.traces.hashing import root, text_tokens
from btb.traces.options import ReaderOptions
from btb.traces.prompts import messages_text, prompt_chain
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

BLOCK_TOKENS = 64
SORT_WINDOW_S = 600.0
"""A span is written once it has ended, and few take more than ten minutes."""

OPERATIONS = frozenset(("chat", "generate_content", "text_completion"))
CONTENT = ("gen_ai.tool.definitions", "gen_ai.system_instructions", "gen_ai.input.messages")
NO_CONTENT = "no prompts stored (content is opt-in): rate models only"


class Otel(Format):
    """Reader of GenAI spans."""

    name = "otel"

    def matches(self, row: Row) -> bool:
        """Return whether `row` is OTLP, or a span with an attribute of GenAI."""
        return "resourceSpans" in row or any(key.startswith("gen_ai.") for key in _attributes(row))

    def reading(self, _: Source, head: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it."""
        block_tokens = options.block_tokens or BLOCK_TOKENS
        stored = any(
            name in _attributes(span) for row in head for span in spans(row) for name in CONTENT
        )
        return Reading(
            block_tokens,
            parser=lambda: lambda span: _arrival(span, block_tokens),
            lay=sorted_by_time(SORT_WINDOW_S, options),
            split=spans,
            has_prefixes=stored,
            notes=() if stored else (NO_CONTENT,),
        )


def spans(row: Row) -> Iterator[Row]:
    """Yield the spans of an OTLP object, or `row` itself where it is one."""
    if "resourceSpans" not in row:
        yield row
        return
    for resource in _objects(row, "resourceSpans"):
        for scope in _objects(resource, "scopeSpans"):
            yield from _objects(scope, "spans")


def _objects(row: Row, name: str) -> list[Row]:
    some = row.get(name)
    return [one for one in some if isinstance(one, dict)] if isinstance(some, list) else []


def _arrival(span: Row, block_tokens: int) -> Arrival | None:
    attributes = _attributes(span)
    if attributes.get("gen_ai.operation.name") not in OPERATIONS:
        return None
    content = messages_text(*(attributes.get(name) for name in CONTENT))
    given = attributes.get("gen_ai.usage.input_tokens")
    tokens = None if given is None else whole(attributes, "gen_ai.usage.input_tokens")
    start = root(block_tokens, model=label(attributes, "gen_ai.request.model"))
    return Arrival(
        at_s=_start_s(span),
        chain=prompt_chain(content, block_tokens, start, tokens),
        block_tokens=block_tokens,
        input_tokens=text_tokens(content) if tokens is None else tokens,
        output_tokens=whole(attributes, "gen_ai.usage.output_tokens", 1),
        session=label(attributes, "gen_ai.conversation.id"),
        request_id=label(span, "spanId") or label(span, "span_id"),
    )


def _start_s(span: Row) -> float:
    if span.get("startTimeUnixNano") is None:
        return moment(span, "start_time")
    return whole(span, "startTimeUnixNano") / 1e9


def _attributes(span: Row) -> dict[str, Any]:
    """Return a span's attributes by name: OTLP's list, a plain object, or those on the span."""
    given = span.get("attributes")
    if isinstance(given, list):
        return {str(one["key"]): _value(one.get("value")) for one in given if _is_pair(one)}
    return given if isinstance(given, dict) else dict(span)


def _value(value: object) -> Any:
    """Return what an OTLP value holds, through lists and objects, or None where it is empty."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    kind, held = next(iter(value.items()))
    if kind not in {"arrayValue", "kvlistValue"}:
        return held
    values = held.get("values") if isinstance(held, dict) else None
    some = values if isinstance(values, list) else []
    if kind == "arrayValue":
        return [_value(one) for one in some]
    return {str(one["key"]): _value(one.get("value")) for one in some if _is_pair(one)}


def _is_pair(one: object) -> bool:
    return isinstance(one, dict) and "key" in one
