"""Models on disk: one JSON file of numbers, names and bytes, which runs no code when read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from models import learner
from models.base import CountModel
from models.state import Json, State, check_version, from_text, read_number, to_text

FORMAT = "btb-models"
VERSION = 1

MAX_BYTES = 2**28
"""No file that is larger is read."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Models of one kind, one a horizon, and where they learnt what they know.

    Parameters
    ----------
    name
        Their kind, one of `models.MODELS`.
    models
        By horizon in seconds.
    boundary_tokens
        Depth of the prefixes they were trained on, in tokens.
    traces
        Digests of the traces that they were trained on, by the trace's name.
    """

    name: str
    models: Mapping[float, CountModel]
    boundary_tokens: int
    traces: Mapping[str, str] = field(default_factory=dict)


def to_json(checkpoint: Checkpoint) -> str:
    """Return `checkpoint` as the text of a JSON file."""
    models: list[State] = [
        {"horizon_s": horizon_s, "state": model.to_state()}
        for horizon_s, model in sorted(checkpoint.models.items(), key=lambda item: item[0])
    ]
    content: State = {
        "format": FORMAT,
        "version": VERSION,
        "name": checkpoint.name,
        "boundary_tokens": checkpoint.boundary_tokens,
        "traces": dict(checkpoint.traces),
        "models": models,
    }
    return to_text(content) + "\n"


def from_json(text: str) -> Checkpoint:
    """Return the checkpoint that `text` holds.

    Raises
    ------
    ValueError
        If it is none, of another version, or a field is missing or wrong; says which.
    """
    content = from_text(text)
    if content.get("format") != FORMAT:
        raise ValueError(f"format should be {FORMAT!r}, got {content.get('format')!r:.60}")
    check_version(content, VERSION)
    name = content.get("name")
    if not isinstance(name, str):
        raise ValueError(f"name should be a string, got {name!r:.60}")
    return Checkpoint(
        name=name,
        models=_read_models(name, content.get("models")),
        boundary_tokens=int(read_number(content, "boundary_tokens", low=1)),
        traces=_read_traces(content.get("traces")),
    )


def save(checkpoint: Checkpoint, path: Path) -> None:
    """Write `checkpoint` to `path`; a crash leaves the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(to_json(checkpoint), encoding="utf-8")
    part.replace(path)


def load(path: Path) -> Checkpoint:
    """Read the checkpoint at `path`.

    Raises
    ------
    OSError
        If the file can't be read.
    ValueError
        If it is no checkpoint, too large, of another version, or a field is missing or wrong; says
        which.
    """
    size_bytes = path.stat().st_size
    if size_bytes > MAX_BYTES:
        raise ValueError(f"has {size_bytes} bytes, and at most {MAX_BYTES} are read")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"no JSON, which is UTF-8: {error.reason}") from error
    return from_json(text)


def _read_models(name: str, entries: Json) -> dict[float, CountModel]:
    kind = learner(name)
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"models should be a list with a model a horizon, got {entries!r:.60}")
    models: dict[float, CountModel] = {}
    for k, entry in enumerate(entries):
        where = f"models[{k}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("state"), Mapping):
            raise ValueError(f"{where} should hold horizon_s and state, got {entry!r:.60}")
        try:
            horizon_s = read_number(entry, "horizon_s")
            if horizon_s != read_number(entry["state"], "horizon_s"):
                raise ValueError("horizon_s is not that of the state")
            models[horizon_s] = kind.from_state(entry["state"])
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if not (isfinite(horizon_s) and list(models) == sorted(models) and len(models) == k + 1):
            raise ValueError(f"{where}: horizons should rise, got {horizon_s!r}")
    return models


def _read_traces(traces: Json) -> dict[str, str]:
    if not isinstance(traces, Mapping):
        raise ValueError(f"traces should map names to digests, got {traces!r:.60}")
    read: dict[str, str] = {}
    for trace, digest in traces.items():
        if not isinstance(digest, str):
            raise ValueError(
                f"digest of trace {trace!r:.60} should be a string, got {digest!r:.60}"
            )
        read[trace] = digest
    return read
