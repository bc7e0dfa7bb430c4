"""Dynamo request traces (`dynamo.request.trace.v1`), bare or wrapped by its recorder.

Rows are written when a request ends, so they are sorted by `request_received_ms`. The hashes roll:
each names all blocks up to its own. They are chained once more only to bring the model in.
"""

from collections.abc import Sequence
from typing import Any

from btb.traces.fields import BadField, block_ids, label, mapping, seconds, whole
from btb.traces.format import Format, Reading, sorted_by_time
from btb.traces.hashing import chained, root
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

BLOCK_TOKENS = 16
SORT_WINDOW_S = 600.0
"""A request is logged once it has ended, and few take more than ten minutes."""


class Dynamo(Format):
    """Reader of Dynamo request traces; the segments of a folder are one trace."""

    name = "dynamo"
    joins = ".jsonl"

    def matches(self, row: Row) -> bool:
        """Return whether `row` names Dynamo's schema, in its present or its older spelling."""
        schema = _event(row).get("schema")
        return isinstance(schema, str) and schema.startswith("dynamo.")

    def reading(self, _: Source, head: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it; the first request's block size holds for all."""
        sizes = [size for size in map(_block_tokens, head) if size]
        block_tokens = sizes[0] if sizes else options.block_tokens or BLOCK_TOKENS

        def parse(row: Row) -> Arrival | None:
            event = _event(row)
            return _arrival(event, block_tokens) if _is_request(event) else None

        requests = any(_is_request(_event(row)) for row in head)
        notes = ("no request has its replay part: rate models only",)
        return Reading(
            block_tokens,
            parser=lambda: parse,
            lay=sorted_by_time(SORT_WINDOW_S, options),
            has_prefixes=bool(sizes) or not requests,
            notes=() if sizes or not requests else notes,
        )


def _arrival(event: Row, block_tokens: int) -> Arrival:
    request = mapping(event, "request")
    context, model = event.get("agent_context") or {}, label(request, "model")
    replay = request.get("replay")
    ids: list[int] = []
    if replay is not None:
        replay = mapping(request, "replay")
        if whole(replay, "trace_block_size") != block_tokens:
            raise BadField("trace_block_size", f"{block_tokens}, as in the first request")
        ids = block_ids(replay, "input_sequence_hashes")
    return Arrival(
        at_s=seconds(request, "request_received_ms", unit_s=0.001),
        chain=chained(ids, root(block_tokens, model=model)),
        block_tokens=block_tokens,
        input_tokens=whole(request, "input_tokens"),
        output_tokens=whole(request, "output_tokens", 1),
        session=label(context, "session_id") if isinstance(context, dict) else "",
        request_id=label(request, "request_id"),
    )


def _event(row: Row) -> Row:
    event = row.get("event")
    return event if isinstance(event, dict) else row


def _is_request(event: Row) -> bool:
    return event.get("event_type") == "request_end"


def _block_tokens(row: Row) -> int:
    part: Any = _event(row)
    for name in ("request", "replay", "trace_block_size"):
        part = part.get(name) if isinstance(part, dict) else None
    return part if isinstance(part, int) and part > 0 else 0
