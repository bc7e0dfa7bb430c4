"""Models in MLflow's registry: a version for each training, and one of them is the champion."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from btb.errors import ConfigError
from btb.tracking import Run, load_checkpoint, quiet
from btb.training import CHAMPION
from forecasting.features import FEATURE_NAMES
from models.checkpoint import Checkpoint, save

FOLDER = "model"


@dataclass(frozen=True, slots=True)
class Registered:
    """A version in the registry."""

    name: str
    version: str

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


def champion(run: Run, name: str) -> Checkpoint | None:
    """Return the champion among the models registered as `name`, or None where there is none.

    Raises
    ------
    ConfigError
        If there is one that can't be read.
    """
    from mlflow.exceptions import MlflowException

    try:
        run.mlflow.get_model_version_by_alias(name, CHAMPION)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise ConfigError(f"can't look up the champion of {name}: {error}") from error
    return load_checkpoint(f"models:/{name}@{CHAMPION}")


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
    made = run.mlflow.create_model_version(name, source, run.id)
    return Registered(name, str(made.version))


def crown(run: Run, registered: Registered) -> None:
    """Make `registered` the champion."""
    run.mlflow.set_registered_model_alias(registered.name, CHAMPION, registered.version)


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
            pip_requirements=[f"{name}=={version(name)}" for name in ("river", "scipy", "numpy")],
        )
