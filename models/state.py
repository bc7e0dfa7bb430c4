"""What a model knows, as plain values: no pickle, so a file from others runs no code."""

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from math import inf, isfinite

Json = None | bool | int | float | str | bytes | Sequence["Json"] | Mapping[str, "Json"]
"""What a state can hold: what a JSON file can, and bytes, which `to_text` wraps."""

State = Mapping[str, Json]
"""The state of a model: values by name."""

WRAPPED = frozenset(("base64", "sha256"))
"""Keys of the object that stands for bytes in JSON; no other object has just these."""


def to_text(state: State) -> str:
    r"""Return `state` as JSON, bytes as an object with their base64 and digest.

    >>> to_text({"scale": 0.5, "weights": b"\x00"})[:44]
    '{"scale": 0.5, "weights": {"base64": "AA==",'
    """
    return json.dumps(state, allow_nan=False, default=_wrap)


def from_text(text: str) -> State:
    """Return the state that `to_text` wrote.

    Raises
    ------
    ValueError
        If it is no JSON object, or bytes are not what their digest says.
    """
    try:
        state = json.loads(text, object_hook=_unwrap)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(state, Mapping):
        raise ValueError(f"should be a JSON object, got {state!r:.60}")
    return state


def read_number(state: State, name: str, low: float = -inf, high: float = inf) -> float:
    """Return the number called `name`, which must be finite and lie in [low, high].

    Raises
    ------
    ValueError
        If it is missing, no number or out of range.
    """
    return _number(state.get(name), name, low, high)


def read_numbers(state: State, name: str, length: int, low: float = -inf) -> list[float]:
    """Return the list of `length` finite numbers called `name`, none of them below `low`.

    Raises
    ------
    ValueError
        If it is missing, no list, of another length, or one of its values is wrong.

    Examples
    --------
    >>> read_numbers({"weights": [1, 2.5]}, "weights", 2)
    [1.0, 2.5]
    """
    values = _sequence(state, name)
    if len(values) != length:
        raise ValueError(f"{name} should have {length} numbers, got {len(values)}")
    return [_number(value, f"{name}[{k}]", low, inf) for k, value in enumerate(values)]


def read_up_to(state: State, name: str, longest: int) -> list[float]:
    """Return the list of at most `longest` finite numbers called `name`.

    Raises
    ------
    ValueError
        If it is missing, no list, longer, or one of its values is no finite number.
    """
    values = _sequence(state, name)
    if len(values) > longest:
        raise ValueError(f"{name} should have at most {longest} numbers, got {len(values)}")
    return [_number(value, f"{name}[{k}]", -inf, inf) for k, value in enumerate(values)]


def read_names(state: State, name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the list of names called `name`, all different and all among those `known`.

    Raises
    ------
    ValueError
        If it is missing, no list, or one of them is not known or comes twice.
    """
    values = _sequence(state, name)
    names: dict[str, None] = {}
    for k, value in enumerate(values):
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"{name}[{k}] is not known: {value!r:.60}")
        if value in names:
            raise ValueError(f"{name}[{k}] comes twice: {value!r}")
        names[value] = None
    return tuple(names)


def read_state(state: State, name: str) -> State:
    """Return the object called `name`.

    Raises
    ------
    ValueError
        If it is missing or no object.
    """
    value = state.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} should be an object, got {value!r:.60}")
    return value


def read_bytes(state: State, name: str, length: int) -> bytes:
    """Return the `length` bytes called `name`.

    Raises
    ------
    ValueError
        If they are missing, no bytes or of another length.
    """
    value = state.get(name)
    if not isinstance(value, bytes):
        raise ValueError(f"{name} should be bytes, got {value!r:.60}")
    if len(value) != length:
        raise ValueError(f"{name} should have {length} bytes, got {len(value)}")
    return value


def check_version(state: State, version: int) -> None:
    """Make sure that `state` has this `version`.

    Raises
    ------
    ValueError
        If it has another one, or none.
    """
    if state.get("version") != version:
        raise ValueError(f"version should be {version}, got {state.get('version')!r:.60}")


def _sequence(state: State, name: str) -> Sequence[Json]:
    values = state.get(name)
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise ValueError(f"{name} should be a list of numbers, got {values!r:.60}")
    return values


def _number(value: Json, name: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise ValueError(f"{name} should be a finite number, got {value!r:.60}")
    if not low <= value <= high:
        raise ValueError(f"{name} should lie in [{low:g}, {high:g}], got {value!r}")
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _wrap(value: object) -> dict[str, str]:
    if not isinstance(value, bytes):
        raise TypeError(f"a state can't hold {type(value).__name__}")
    return {"base64": b64encode(value).decode(), "sha256": sha256(value).hexdigest()}


def _unwrap(found: dict[str, Json]) -> Json:
    if found.keys() != WRAPPED:
        return found
    text = found["base64"]
    if not isinstance(text, str):
        raise ValueError(f"base64 should be a string, got {text!r:.60}")
    value = b64decode(text, validate=True)
    if sha256(value).hexdigest() != found["sha256"]:
        raise ValueError(f"{len(value)} bytes are not what their sha256 says")
    return value
