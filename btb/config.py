"""Settings of the service: one TOML file into frozen dataclasses, an unknown key is an error."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from btb.errors import ConfigError
from models import DEFAULT

Section = TypeVar("Section")


@dataclass(frozen=True, slots=True)
class Server:
    """Where the service listens. Other than loopback needs `token_file`, one line of secret.

    Port 0 takes any that is free.
    """

    host: str = "127.0.0.1"
    port: int = 8017
    token_file: str = ""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log of arrivals and outcomes. An empty `dir` keeps none, and a restart forgets.

    `group_s` is how long an arrival waits for others to share its fsync, `segment_bytes` where a
    new file begins, `queue_bytes` how much may wait to be written, `replay_bytes` how much of the
    newest log is learnt from at the start.
    """

    dir: str = ""
    group_s: float = 0.005
    segment_bytes: int = 64_000_000
    queue_bytes: int = 64_000_000
    replay_bytes: int = 64_000_000


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Where new models come from while the service runs.

    `poll_s` is how often the model is looked for where it came from. `challenger` is scored in its
    shadow; left empty it is models:/NAME@challenger where the model is models:/NAME@ALIAS, and
    none elsewhere. That takes at most `shadow_share` of one core's time. Every `window_s` the
    scores go to MLflow, if `track` and if both come from its registry.
    """

    poll_s: float = 30.0
    challenger: str = ""
    shadow_share: float = 0.2
    window_s: float = 600.0
    track: bool = True


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """How the policy is watched: `policies.guarded` has the modes and what `holdout` is."""

    mode: str = "enforce"
    holdout: float = 0.05


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is taken before the answer is a refusal.

    `outstanding` requests are remembered until their outcome comes or `outcome_timeout_s` is over.
    `late_s` and `early_s` bound how far a given `at_s` may be from the service's clock.
    `unfed_arrivals` may wait for the log and the forecaster together. A decision that takes longer
    than `decision_s` is replaced, and the policy is not asked for a while.
    """

    body_bytes: int = 8_000_000
    body_s: float = 30.0
    batch: int = 1_000
    chain_blocks: int = 16_384
    replicas: int = 256
    outstanding: int = 50_000
    outcome_timeout_s: float = 600.0
    unfed_arrivals: int = 20_000
    top: int = 100
    late_s: float = 5.0
    early_s: float = 1.0
    connections: int = 1_024
    decision_s: float = 0.25


@dataclass(frozen=True, slots=True)
class Config:
    """All that `btb serve` can be told.

    `policy_parameters` go to the policy as they are. `copies` says whether somebody carries copies
    out; where it is false, policies see that a copy would take forever and order none.
    """

    model: str = DEFAULT
    policy: str = "btb"
    setup: str = "70b_h100x4"
    seed: int = 0
    copies: bool = True
    server: Server = field(default_factory=Server)
    log: LogSettings = field(default_factory=LogSettings)
    models: ModelSettings = field(default_factory=ModelSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    limits: Limits = field(default_factory=Limits)
    policy_parameters: Mapping[str, Any] = field(default_factory=dict)


def read_config(path: Path) -> Config:
    """Return the settings in the TOML file at `path`, defaults where it says nothing.

    Raises
    ------
    ConfigError
        If the file can't be read or is no TOML, or a key is unknown or its value of another kind.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is no TOML: {error}") from error
    return fill(Config(), given, where=f"{path}: ")


def fill(section: Section, given: Mapping[str, Any], *, where: str = "") -> Section:
    """Return `section` with the values `given` in their place, checked by name and kind.

    Raises
    ------
    ConfigError
        If a name is unknown (the nearest is named), or a value is of another kind or no quantity.

    Examples
    --------
    >>> fill(Server(), {"port": 9000}).port
    9000
    >>> fill(Server(), {"prot": 9000})
    Traceback (most recent call last):
    ...
    btb.errors.ConfigError: unknown key 'prot'; did you mean 'port'?
    """
    known = [one.name for one in fields(section)]  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{where}unknown key {name!r}{_nearest(name, known)}")
        changes[name] = _checked(name, value, getattr(section, name), where)
    return replace(section, **changes)  # type: ignore[type-var]


_KINDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _checked(name: str, value: Any, default: Any, where: str) -> Any:
    if isinstance(default, Mapping) or is_dataclass(default):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}{name} must be a table, got {value!r}")
        if isinstance(default, Mapping):
            return _flat(name, value, where)
        return fill(default, value, where=f"{where}{name}: ")
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if type(value) is not type(default):
        raise ConfigError(f"{where}{name} must be {_KINDS[type(default)]}, got {value!r}")
    if isinstance(value, str | bool) or name == "seed" or (name, value) == ("port", 0):
        return value
    if not (isfinite(value) and value > 0):
        raise ConfigError(f"{where}{name} must be finite and more than 0, got {value!r}")
    if name == "port" and value > 65_535:
        raise ConfigError(f"{where}port must be at most 65535, got {value!r}")
    return value


def _flat(name: str, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    for key, value in given.items():
        if type(value) not in _KINDS:
            raise ConfigError(f"{where}{name}: {key} must be text, a number or true or false")
    return dict(given)


def _nearest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"
