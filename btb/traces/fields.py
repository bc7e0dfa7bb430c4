"""Values out of a raw row, or a word on what was expected there."""

from datetime import UTC, datetime
from math import isfinite
from typing import Any

import xxhash

from btb.traces.records import Row

MASK_64 = 2**64 - 1


class BadField(Exception):
    """A field of a row is not what it should be."""

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field}: expected {expected}" if field else f"expected {expected}")
        self.field = field
        self.expected = expected


def seconds(row: Row, field: str, *, unit_s: float = 1.0) -> float:
    """Return a point or a length of time in seconds; `unit_s` is what the trace counts in."""
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadField(field, f"a number, got {_short(value)}")
    try:
        at_s = value * unit_s if unit_s >= 1.0 else value / round(1.0 / unit_s)
    except OverflowError:
        at_s = float("inf")
    if not (isfinite(at_s) and at_s >= 0.0):
        raise BadField(field, f"a finite number, 0 or more, got {_short(value)}")
    return at_s


def digits(row: Row, field: str) -> float:
    """Return a number that the trace writes as text."""
    value = row.get(field)
    try:
        return seconds({field: float(value)}, field)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadField(field, f"a number, got {_short(value)}") from None


def moment(row: Row, field: str) -> float:
    """Return seconds since 1970 of an ISO 8601 time; UTC where it names no zone."""
    value = row.get(field)
    try:
        at = datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadField(field, f"an ISO 8601 time, got {_short(value)}") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def whole(row: Row, field: str, default: int | None = None) -> int:
    """Return a whole number, 0 or more; `default` stands for one that is missing or null."""
    value = row.get(field)
    if value in (None, "") and default is not None:
        return default
    if type(value) is int and 0 <= value <= MASK_64:
        return value
    try:
        number = int(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = -1
    if isinstance(value, bool) or number < 0 or number > MASK_64 or number != float(value):  # type: ignore[arg-type]
        raise BadField(field, f"a whole number, 0 or more, got {_short(value)}")
    return number


def text(row: Row, field: str, default: str | None = None) -> str:
    """Return a string; `default` stands for one that is missing or null."""
    value = row.get(field)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise BadField(field, f"a string, got {_short(value)}")
    return value


def label(row: Row, field: str) -> str:
    """Return a name that may be a string or a number, or "" where there is none."""
    value = row.get(field)
    if value is None:
        return ""
    if isinstance(value, str | int):
        return str(value)
    raise BadField(field, f"a string or a whole number, got {_short(value)}")


def block_ids(row: Row, field: str) -> list[int]:
    """Return block ids as unsigned 64-bit numbers; ids that are strings are hashed to such."""
    values = row.get(field)
    if not isinstance(values, list):
        raise BadField(field, f"a list of block ids, got {_short(values)}")
    kinds = set(map(type, values))
    if kinds <= {int}:
        if values and not (min(values) >= -(2**63) and max(values) <= MASK_64):
            raise BadField(field, "block ids of 64 bits")
        return values if not values or min(values) >= 0 else [one & MASK_64 for one in values]
    if kinds == {str}:
        return [xxhash.xxh3_64_intdigest(one.encode("utf-8", "surrogatepass")) for one in values]
    raise BadField(field, "block ids that are all whole numbers, or all strings")


def mapping(row: Row, field: str) -> dict[str, Any]:
    """Return a nested object."""
    value = row.get(field)
    if not isinstance(value, dict):
        raise BadField(field, f"an object, got {_short(value)}")
    return value


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
