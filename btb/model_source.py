"""What a model's name leads to at the moment: the file or the version behind it, and its state."""

from dataclasses import dataclass
from pathlib import Path

from btb import registry, tracking
from btb.errors import ConfigError
from models import MODELS


@dataclass(frozen=True, slots=True)
class Found:
    """`exact` leads to the same models always, and `stamp` is another once a file has changed."""

    exact: str
    stamp: str


def look_up(spec: str) -> Found | None:
    """Return what `spec`, as `tracking.load_checkpoint` takes it, leads to; None if to nothing.

    Raises
    ------
    ConfigError
        If MLflow or the file can't be asked.

    Examples
    --------
    >>> look_up("river")
    Found(exact='river', stamp='river')
    """
    if spec in MODELS:
        return Found(spec, spec)
    if spec.startswith("models:/"):
        return _registered(spec)
    try:
        state = Path(spec).stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"can't read {spec}: {error.strerror}") from error
    return Found(spec, f"{state.st_dev} {state.st_ino} {state.st_size} {state.st_mtime_ns}")


def challenger_of(spec: str) -> str:
    """Return the alias under which the challenger of what `spec` names is registered, "" if none.

    >>> challenger_of("models:/chat@champion"), challenger_of("models:/chat/3")
    ('models:/chat@challenger', '')
    """
    name, at, _ = spec.removeprefix("models:/").partition("@")
    return f"models:/{name}@{registry.CHALLENGER}" if at and spec.startswith("models:/") else ""


def _registered(spec: str) -> Found | None:
    name, at, alias = spec.removeprefix("models:/").partition("@")
    if not at:
        return Found(spec, spec)
    found = registry.find(tracking.client(), name, alias)
    return None if found is None else Found(found.spec, found.spec)
