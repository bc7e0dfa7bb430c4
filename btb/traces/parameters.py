"""Turn NAME=VALUE words into the parameters of a workload family."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from typing import Any

from btb.errors import ConfigError
from btb.traces.workloads import FAMILIES

TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def pairs(words: Iterable[str]) -> dict[str, str]:
    """Split words like `size=100` into names and values.

    Raises
    ------
    ConfigError
        If a word has no `=`, or a name comes twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r} is no parameter; expected NAME=VALUE")
        if name in found:
            raise ConfigError(f"parameter {name!r} is given twice")
        found[name] = value
    return found


def make_parameters(family: str, settings: Mapping[str, str]) -> Any:
    """Return the parameters of `family`: its defaults, with `settings` in their place.

    Raises
    ------
    ConfigError
        If there is no such family or parameter (the nearest is named), or a value is not of its
        parameter's kind or out of range.
    """
    if family not in FAMILIES:
        known = [*FAMILIES, "article"]
        raise ConfigError(f"no family is called {family!r}{_nearest(family, known)}")
    kind = FAMILIES[family].parameters
    known_fields: dict[str, Field[Any]] = {field.name: field for field in fields(kind)}
    values = {}
    for name, text in settings.items():
        if name not in known_fields:
            known = [f"{field.name}={_shown(field)}" for field in known_fields.values()]
            nearest = _nearest(name, list(known_fields))
            have = ", ".join(known)
            raise ConfigError(f"{family} has no parameter {name!r}{nearest}. It has {have}")
        values[name] = _value(name, text, type(known_fields[name].default))
    try:
        return kind(**values)
    except ValueError as error:
        raise ConfigError(f"{family}: {error}") from error


def _value(name: str, text: str, kind: type) -> bool | int | float:
    try:
        if kind is bool:
            return TRUTH[text.lower()]
        return int(text) if kind is int else float(text)
    except (KeyError, ValueError):
        expected = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
        raise ConfigError(f"parameter {name} must be {expected}, got {text!r}") from None


def _shown(field: Field[Any]) -> str:
    assert field.default is not MISSING, "every parameter has a default"
    return str(field.default).lower() if isinstance(field.default, bool) else f"{field.default}"


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
