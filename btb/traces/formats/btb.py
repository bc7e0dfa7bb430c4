"""Our own log: what the service wrote down, one JSON object a line.

Arrivals are objects of kind "arrival"; other kinds (outcomes) stand between them and are passed
over. Chains are written as the service had them, tenants' seeds included.
"""

from collections.abc import Sequence

from btb.traces.fields import BadField, block_ids, seconds, text, whole
from btb.traces.format import Format, Reading, sorted_by_time
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

VERSION = 1
SORT_WINDOW_S = 10.0
USUAL_BLOCK_TOKENS = 512


class Btb(Format):
    """Reader of the service's own log."""

    name = "btb"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has a version and a kind."""
        return {"v", "kind"} <= row.keys()

    def reading(self, _: Source, head: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it; the first arrival's block size holds for all."""
        first = next((row for row in head if row.get("kind") == "arrival"), {})
        given = first.get("block_tokens")
        block_tokens = given if isinstance(given, int) and given > 0 else USUAL_BLOCK_TOKENS

        def parse(row: Row) -> Arrival | None:
            if row.get("kind") != "arrival":
                return None
            arrival = arrival_from_row(row)
            if arrival.block_tokens != block_tokens:
                raise BadField("block_tokens", f"{block_tokens}, as in the first arrival")
            return arrival

        return Reading(
            block_tokens, parser=lambda: parse, lay=sorted_by_time(SORT_WINDOW_S, options)
        )


def arrival_to_row(arrival: Arrival) -> dict[str, object]:
    """Return `arrival` as an object of our log, ready for JSON.

    >>> arrival = Arrival(0.5, (7, 9), block_tokens=16, input_tokens=40)
    >>> arrival_from_row(arrival_to_row(arrival)) == arrival
    True
    """
    return {
        "v": VERSION,
        "kind": "arrival",
        "at_s": arrival.at_s,
        "chain": list(arrival.chain),
        "block_tokens": arrival.block_tokens,
        "input_tokens": arrival.input_tokens,
        "output_tokens": arrival.output_tokens,
        "tenant": arrival.tenant,
        "session": arrival.session,
        "request_id": arrival.request_id,
    }


def arrival_from_row(row: Row) -> Arrival:
    """Return the arrival that an object of our log stands for.

    Raises
    ------
    BadField
        If a field is not what `arrival_to_row` writes.
    """
    if row.get("v") != VERSION:
        raise BadField("v", f"{VERSION}, got {row.get('v')!r}")
    if row.get("kind") != "arrival":
        raise BadField("kind", f"'arrival', got {row.get('kind')!r}")
    block_tokens = whole(row, "block_tokens")
    if block_tokens < 1:
        raise BadField("block_tokens", "1 or more")
    return Arrival(
        at_s=seconds(row, "at_s"),
        chain=tuple(block_ids(row, "chain")),
        block_tokens=block_tokens,
        input_tokens=whole(row, "input_tokens"),
        output_tokens=whole(row, "output_tokens", 1),
        tenant=text(row, "tenant", ""),
        session=text(row, "session", ""),
        request_id=text(row, "request_id", ""),
    )
