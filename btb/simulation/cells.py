"""One cell of a comparison, what came of it, and how it is kept for the next time.

A cell is one policy on one setup and one window. Its digest covers all that its result depends on,
the source code of what computes it too, so a stored result answers only for what it stands for.
"""

import json
import os
import zipfile
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import btb
import forecasting
import models
import policies
from btb.simulation.parameters import USUAL, CausalParameters
from btb.simulation.result import Result, Transfer

SUFFIX = ".npz"


@dataclass(frozen=True, slots=True)
class Cell:
    """All that a result depends on, except the code.

    `digest` is that of the window's file and `reading` how it was read, `window` its name and
    `index` its place among the windows; `policy` is name and settings as they were typed, `code` a
    digest of the policy's own source; `model` is the digest of the models that forecasts start
    from, empty for a policy that looks at none; `parameters` are the causal engine's.
    """

    digest: str
    reading: str
    window: str
    index: int
    setup: str
    policy: str
    code: str
    engine: str
    model: str
    seed: int
    parameters: CausalParameters = USUAL


@dataclass(frozen=True, slots=True)
class Outcome:
    """A simulated window, the CPU seconds that its engine took, and what reading it had to say."""

    result: Result
    cpu_s: float
    notes: tuple[str, ...] = ()


def cell_digest(cell: Cell, sources: str) -> str:
    """Return the name under which `cell` is stored; `sources` is from `digest_sources`.

    The window's place among the windows is not in it: the same file in another folder is the same.
    """
    named = {**asdict(cell), "index": None, "sources": sources}
    return sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:32]


def digest_sources() -> str:
    """Return a digest of the code that a result depends on: readers, models, policies, engines."""
    found = sha256(version("bite-the-bullet").encode())
    folders = [Path(package.__path__[0]) for package in (policies, forecasting, models)]
    root = Path(btb.__path__[0])
    for folder in (*folders, root / "traces", root / "simulation"):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.relative_to(folder.parent).as_posix().encode() + path.read_bytes())
    found.update((root / "controller.py").read_bytes())
    return found.hexdigest()


def save_outcome(path: Path, outcome: Outcome) -> None:
    """Write `outcome` so that it is there whole or not at all, whenever the process is killed."""
    result = outcome.result
    columns: dict[str, NDArray[Any]] = {name: getattr(result, name) for name in _ARRAYS}
    columns |= {f"hit_{tier}": tokens for tier, tokens in result.hit_tokens.items()}
    for name, kind in _TRANSFER_COLUMNS.items():
        values = [getattr(transfer, name) for transfer in result.transfers]
        columns[f"transfer_{name}"] = np.array(values, dtype=kind)
    columns["decisions"] = np.array(json.dumps(result.decisions))
    columns |= {name: np.array(getattr(result, name)) for name in _NUMBERS}
    columns["cpu_s"] = np.array(outcome.cpu_s)
    columns["notes"] = np.array(json.dumps(outcome.notes))
    half = path.with_suffix(f".{os.getpid()}.part")
    with half.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **columns)
    half.replace(path)


def load_outcome(path: Path) -> Outcome | None:
    """Return what `save_outcome` wrote, or None where there is nothing or it can't be read."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return _unpack(dict(stored))
    except (FileNotFoundError, zipfile.BadZipFile, EOFError, KeyError, ValueError):
        return None


def _unpack(stored: dict[str, NDArray[Any]]) -> Outcome:
    columns = {name: stored[f"transfer_{name}"].tolist() for name in _TRANSFER_COLUMNS}
    columns["prefix_key"] = [int(key) for key in columns["prefix_key"]]
    rows = zip(*columns.values(), strict=True)
    result = Result(
        **{name: stored[name] for name in _ARRAYS},
        hit_tokens={
            name.removeprefix("hit_"): tokens
            for name, tokens in stored.items()
            if name.startswith("hit_")
        },
        transfers=tuple(Transfer(**dict(zip(columns, row, strict=True))) for row in rows),
        decisions=json.loads(str(stored["decisions"])),
        speculated_s=float(stored["speculated_s"]),
        speculated_tokens=int(stored["speculated_tokens"]),
        unused_speculated_tokens=int(stored["unused_speculated_tokens"]),
    )
    notes = tuple(json.loads(str(stored["notes"])))
    return Outcome(result, float(stored["cpu_s"]), notes)


_NUMBERS = ("speculated_s", "speculated_tokens", "unused_speculated_tokens")

_ARRAYS = ("arrived_s", "ttft_s", "finished_s", "replica", "input_tokens")

_TRANSFER_COLUMNS: dict[str, type[np.generic]] = {
    "started_s": np.float64,
    "ended_s": np.float64,
    "source": np.int64,
    "target": np.int64,
    "source_tier": np.str_,
    "prefix_key": np.str_,  # a hash may have more than 64 bits
    "blocks": np.int64,
    "size_bytes": np.float64,
    "asked": np.bool_,
    "used": np.bool_,
    "reason": np.str_,
}
