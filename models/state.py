"""What a model knows, as plain JSON values: no pickle, so a file from others runs no code."""

from collections.abc import Collection, Mapping, Sequence
from math import inf, isfinite

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
"""What a JSON file can hold."""

State = Mapping[str, Json]
"""The state of a model: values by name."""


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
    if not isinstance(values, Sequence) or isinstance(values, str):
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
