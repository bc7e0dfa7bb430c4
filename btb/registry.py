"""Models in MLflow's registry: a version a training, one the champion, one its challenger."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from btb.errors import ConfigError
from btb.tracking import Run, load_checkpoint, quiet
from btb.training import CHAMPION
from forecasting.features import FEATURE_NAMES
from models.checkpoint import Checkpoint, save

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

FOLDER = "model"

NEEDED = ("river", "scikit-learn", "scipy", "numpy")
"""Packages that models need, wherever MLflow runs them."""

CHALLENGER = "challenger"
"""Alias of the newest model that has not shown itself to be better than the champion."""

TRAINED, SHADOW = "btb.trained", "btb.shadow"
"""Tags of a version: how it did against the champion in its training, and in a service's shadow."""

MOST_MODELS = 1_000
"""Names that are listed; MLflow gives no more at a time."""

MAX_REASON = 1_000
"""Characters of a reason that are kept: a tag has room for 5,000."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """How a version did against the version `against`, which was the champion then."""

    against: str
    better: bool
    reason: str

    def to_json(self) -> str:
        """Return it as a tag's text."""
        reason = self.reason[:MAX_REASON]
        return json.dumps({"against": self.against, "better": self.better, "reason": reason})

    @classmethod
    def from_json(cls, text: str) -> "Evidence | None":
        """Return what `to_json` wrote; None where somebody else wrote something else."""
        try:
            found = json.loads(text)
            return cls(str(found["against"]), found["better"] is True, str(found["reason"]))
        except (ValueError, TypeError, KeyError):
            return None


@dataclass(frozen=True, slots=True)
class Registered:
    """A version in the registry.

    Parameters
    ----------
    learner
        Its kind, one of `models.MODELS`.
    traces
        Digest of what it has learnt from.
    evidence
        By tag, `TRAINED` or `SHADOW`.
    """

    name: str
    version: str
    made: str = ""
    learner: str = ""
    traces: str = ""
    aliases: Sequence[str] = ()
    evidence: Mapping[str, Evidence] = field(default_factory=dict)

    @property
    def spec(self) -> str:
        """What to give as `--model` to get it."""
        return f"models:/{self.name}/{self.version}"

    @property
    def champion_spec(self) -> str:
        """What to give as `--model` to get the champion among those of its name."""
        return f"models:/{self.name}@{CHAMPION}"


def check_name(name: str) -> None:
    """Make sure that models can be registered as `name`, and be asked for.

    Raises
    ------
    ConfigError
        If it is empty, or has one of the characters that set alias and version apart.
    """
    if not name or set(name) & set("/:@"):
        raise ConfigError(f"a model can't be called {name!r}: expected a name without / : or @")


def find(mlflow: "MlflowClient", name: str, at: str) -> Registered | None:
    """Return the version of `name` with this number or alias, or None where there is none.

    Raises
    ------
    ConfigError
        If the registry can't be asked.
    """
    from mlflow.exceptions import MlflowException

    try:
        if at.isdecimal():
            return _registered(mlflow.get_model_version(name, at))
        return _registered(mlflow.get_model_version_by_alias(name, at))
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise ConfigError(f"can't look up {at} of {name}: {error}") from error


def list_versions(mlflow: "MlflowClient", name: str = "") -> list[Registered]:
    """Return the versions of `name`, or of every model that `btb` registered, newest first.

    Raises
    ------
    ConfigError
        If the registry can't be asked.
    """
    from mlflow.exceptions import MlflowException

    try:
        aliases = {
            one.name: _by_version(one.aliases)
            for one in mlflow.search_registered_models(max_results=MOST_MODELS)
            if one.name == name or not name
        }
        found = [
            _registered(made, aliases[made.name].get(str(made.version), ()))
            for made in mlflow.search_model_versions()
            if made.name in aliases
        ]
    except MlflowException as error:
        raise ConfigError(f"can't list the models: {error}") from error
    ours = [one for one in found if one.learner]
    return sorted(ours, key=lambda one: (one.name, -int(one.version)))


def champion(mlflow: "MlflowClient", name: str) -> tuple[Registered, Checkpoint] | None:
    """Return the champion among the models registered as `name`, or None where there is none.

    Raises
    ------
    ConfigError
        If there is one that can't be read.
    """
    found = find(mlflow, name, CHAMPION)
    return None if found is None else (found, load_checkpoint(found.spec))


def register(run: Run, name: str, checkpoint: Checkpoint) -> Registered:
    """Store `checkpoint` with `run` as an MLflow model, and register that as `name`."""
    from mlflow.exceptions import MlflowException

    with TemporaryDirectory() as folder:
        packed = Path(folder) / FOLDER
        _pack(checkpoint, Path(folder) / "checkpoint.json", packed)
        run.artifact(packed, FOLDER)
    try:
        run.mlflow.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise ConfigError(f"can't register a model as {name!r}: {error}") from error
    source = f"{run.mlflow.get_run(run.id).info.artifact_uri}/{FOLDER}"
    tags = {"btb.learner": checkpoint.name, "btb.traces": traces_digest(checkpoint)}
    return _registered(run.mlflow.create_model_version(name, source, run.id, tags=tags))


def traces_digest(checkpoint: Checkpoint) -> str:
    """Return the SHA-256 of the one trace that was learnt from, or of the digests of several."""
    digests = sorted(set(checkpoint.traces.values()))
    return digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode()).hexdigest()


def testify(mlflow: "MlflowClient", one: Registered, tag: str, evidence: Evidence) -> None:
    """Keep with a version how it did against the champion."""
    mlflow.set_model_version_tag(one.name, one.version, tag, evidence.to_json())


def crown(mlflow: "MlflowClient", one: Registered) -> None:
    """Make a version the champion; it is then no challenger any more."""
    mlflow.set_registered_model_alias(one.name, CHAMPION, one.version)
    challenger = find(mlflow, one.name, CHALLENGER)
    if challenger is not None and challenger.version == one.version:
        mlflow.delete_registered_model_alias(one.name, CHALLENGER)


def challenge(mlflow: "MlflowClient", one: Registered) -> None:
    """Make a version the challenger, in place of an earlier one."""
    mlflow.set_registered_model_alias(one.name, CHALLENGER, one.version)


def _registered(made: "ModelVersion", aliases: Sequence[str] | None = None) -> Registered:
    tags: Mapping[str, str] = made.tags or {}
    told = {tag: Evidence.from_json(tags[tag]) for tag in (TRAINED, SHADOW) if tag in tags}
    at = datetime.fromtimestamp((made.creation_timestamp or 0) / 1000.0, UTC)
    return Registered(
        name=str(made.name),
        version=str(made.version),
        made=at.isoformat(timespec="seconds"),
        learner=tags.get("btb.learner", ""),
        traces=tags.get("btb.traces", ""),
        aliases=tuple(made.aliases if aliases is None else aliases),
        evidence={tag: evidence for tag, evidence in told.items() if evidence is not None},
    )


def _by_version(aliases: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return the aliases of each version: a search for versions doesn't tell."""
    found: dict[str, tuple[str, ...]] = {}
    for alias, number in sorted(aliases.items()):
        found[str(number)] = (*found.get(str(number), ()), alias)
    return found


def _pack(checkpoint: Checkpoint, file: Path, packed: Path) -> None:
    """Lay out a pyfunc model around a checkpoint in the folder `packed`."""
    save(checkpoint, file)
    with quiet():
        import mlflow.pyfunc
        from mlflow.models import ModelSignature
        from mlflow.types import ColSpec, Schema

        answers = [f"{k}_{h:g}s" for h in checkpoint.models for k in ("mean", "shape")]
        mlflow.pyfunc.save_model(
            str(packed),
            python_model=str(Path(__file__).with_name("model_code.py")),
            artifacts={"checkpoint": str(file)},
            signature=ModelSignature(
                inputs=Schema([ColSpec("double", name) for name in FEATURE_NAMES]),
                outputs=Schema([ColSpec("double", name) for name in answers]),
            ),
            # Written out: else MLflow runs the model in a process of its own to find out.
            pip_requirements=[f"{name}=={version(name)}" for name in NEEDED],
        )
