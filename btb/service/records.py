"""Rows of the log: arrivals as traces have them, and what came of routed requests."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from btb.service.bodies import OutcomeBody
from btb.service.tenants import stored
from btb.traces import arrival_from_row, arrival_to_row
from forecasting.arrival import Arrival


def arrival_line(arrival: Arrival) -> bytes:
    r"""Return the line for an arrival whose chain is as its client named it.

    >>> line = arrival_line(Arrival(0.5, (7, 9), 16, 40, tenant="acme"))
    >>> read_arrival(json.loads(line)).chain
    (7, 9)
    """
    return _line(arrival_to_row(replace(arrival, chain=stored(arrival.chain, arrival.tenant))))


def read_arrival(row: Mapping[str, Any]) -> Arrival:
    """Return the arrival in a row of the log, its chain as its client named it.

    Raises
    ------
    btb.traces.fields.BadField
        If the row is not what `arrival_line` writes.
    """
    arrival = arrival_from_row(row)
    return replace(arrival, chain=stored(arrival.chain, arrival.tenant))


def outcome_line(body: OutcomeBody, *, at_s: float, tenant: str, replica: str) -> bytes:
    """Return the line for what came of a routed request, as heard at `at_s`."""
    return _line(
        {
            "v": 1,
            "kind": "outcome",
            "at_s": at_s,
            "request_id": body.request_id,
            "replica": replica,
            "ttft_s": body.ttft_s,
            "hit_tokens": body.hit_tokens,
            "finished": body.finished,
            "tenant": tenant,
        }
    )


def _line(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"
