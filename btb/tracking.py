"""Runs and models in MLflow: SQLite in the working directory, or where MLFLOW_TRACKING_URI says.

Nothing is imported from MLflow before the first call, and nothing is sent to anybody: its telemetry
is switched off.
"""

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from btb.errors import ConfigError
from forecasting.forecaster import BOUNDARY_TOKENS
from models import MODELS, learner, make_models
from models.checkpoint import Checkpoint, load

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow import MlflowClient

DEFAULT_URI = "sqlite:///mlflow.db"
ARTIFACTS = "mlartifacts"
"""Where runs and their files go, in the working directory, unless MLFLOW_TRACKING_URI is set."""

CHECKPOINT = "artifacts/checkpoint.json"
"""Where the checkpoint lies in a registered model: MLflow's pyfunc puts it there."""

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "GIT_PYTHON_REFRESH": "quiet",
}
"""Environment for MLflow, each unless it is set: by default it phones home, talks of its database
on stderr, and waits minutes for a server that isn't there."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep MLflow's and SQLAlchemy's warnings about each other from the user for a while."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def tracking_uri() -> str:
    """Return where runs go."""
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


def client() -> "MlflowClient":
    """Return a connection to MLflow; makes the database if need be, which takes some seconds.

    Raises
    ------
    ConfigError
        If MLflow can't be reached.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    with quiet():
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            made = MlflowClient(tracking_uri())
            made.search_experiments(max_results=1)
        except MlflowException as error:
            raise ConfigError(f"can't use MLflow at {tracking_uri()}: {error}") from error
    return made


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is under way; what it is given is stored at once."""

    id: str
    experiment_id: str
    mlflow: "MlflowClient"

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Store numbers by name, at `step`; those that aren't finite are left out."""
        self._store((name, value, step) for name, value in values.items())

    def metric(self, name: str, value: float, step: int = 0) -> None:
        """Store a number."""
        self.metrics({name: value}, step)

    def curve(self, name: str, points: Iterable[tuple[int, float]]) -> None:
        """Store a number that changes with the step: (step, value) in order."""
        self._store((name, value, step) for step, value in points)

    def figure(self, name: str, figure: "Figure") -> None:
        """Store a plot as the file `name`, like calibration.png."""
        with quiet():
            self.mlflow.log_figure(self.id, figure, name)

    def text(self, name: str, content: str) -> None:
        """Store `content` as the file `name`."""
        self.mlflow.log_text(self.id, content, name)

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Store a file, or all that is in a folder, in the run's `folder`."""
        if path.is_dir():
            self.mlflow.log_artifacts(self.id, str(path), folder)
        else:
            self.mlflow.log_artifact(self.id, str(path), folder)

    def dataset(self, name: str, digest: str) -> None:
        """Store which data went in: its name and SHA-256."""
        from mlflow.entities import Dataset, DatasetInput

        source = f'{{"sha256": "{digest}"}}'
        # MLflow's column for digests is 36 characters wide.
        given = Dataset(name, digest[:32], "local", source)
        self.mlflow.log_inputs(self.id, [DatasetInput(given, [])])

    def _store(self, rows: Iterable[tuple[str, float, int]]) -> None:
        from mlflow.entities import Metric

        now_ms = int(datetime.now(UTC).timestamp() * 1000.0)
        found = [Metric(k, float(v), now_ms, step) for k, v, step in rows if isfinite(v)]
        for k in range(0, len(found), 1000):  # MLflow takes a thousand at a time
            self.mlflow.log_batch(self.id, metrics=found[k : k + 1000])

    @contextmanager
    def child(
        self,
        name: str,
        *,
        tags: Mapping[str, object] | None = None,
        params: Mapping[str, object] | None = None,
    ) -> Iterator["Run"]:
        """Begin a run below this one; see `Experiment.run`."""
        below = {**(tags or {}), "mlflow.parentRunId": self.id}
        with Experiment(self.experiment_id, self.mlflow).run(
            name, tags=below, params=params
        ) as run:
            yield run


@dataclass(frozen=True, slots=True)
class Experiment:
    """Runs that belong together."""

    id: str
    mlflow: "MlflowClient"

    @contextmanager
    def run(
        self,
        name: str,
        *,
        tags: Mapping[str, object] | None = None,
        params: Mapping[str, object] | None = None,
    ) -> Iterator[Run]:
        """Begin a run; it ends with the block, as failed or killed where an error leaves it."""
        from mlflow.entities import Param

        texts = {key: str(value) for key, value in (tags or {}).items()}
        made = self.mlflow.create_run(self.id, run_name=name, tags=texts)
        run = Run(made.info.run_id, self.id, self.mlflow)
        status = "FAILED"
        try:
            given = [Param(key, str(value)) for key, value in (params or {}).items()]
            if given:
                self.mlflow.log_batch(run.id, params=given)
            yield run
            status = "FINISHED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        finally:
            self.mlflow.set_terminated(run.id, status)


def experiment(name: str) -> Experiment:
    """Return the experiment called `name`, made if there is none.

    Raises
    ------
    ConfigError
        If MLflow can't be reached.

    Examples
    --------
        with tracking.experiment("btb compare").run("today", params={"seed": 1}) as run:
            run.metrics({"ttft_mean_s": 0.7})
            with run.child("btb on 70b_h100x4") as child:
                child.figure("ttft.png", figure)
    """
    mlflow = client()
    known = mlflow.get_experiment_by_name(name)
    if known is not None:
        return Experiment(known.experiment_id, mlflow)
    if "MLFLOW_TRACKING_URI" in os.environ:
        return Experiment(mlflow.create_experiment(name), mlflow)
    place = Path(ARTIFACTS).resolve().as_uri()
    return Experiment(mlflow.create_experiment(name, artifact_location=place), mlflow)


def load_checkpoint(spec: str) -> Checkpoint:
    """Return the models that `spec` names, and where they learnt.

    It is a name in `models.MODELS`, which gives fresh ones; the path of a checkpoint; or a model
    registered in MLflow: `models:/NAME@ALIAS`, or `models:/NAME/VERSION`. Only the JSON in it is
    read, so a model from others runs no code.

    Raises
    ------
    ConfigError
        If there is none, or what is there is no checkpoint.
    """
    if spec in MODELS:
        return Checkpoint(spec, make_models(spec), BOUNDARY_TOKENS)
    if spec.startswith("models:/"):
        return _load_registered(spec)
    if not Path(spec).is_file():
        try:
            learner(spec)
        except ValueError as error:
            raise ConfigError(f"{error}; nor is there a file of that name") from error
    return _load_file(Path(spec), spec)


def _load_file(path: Path, spec: str) -> Checkpoint:
    try:
        return load(path)
    except OSError as error:
        raise ConfigError(f"can't read {spec}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{spec} is no checkpoint of btb's: {error}") from error


def _load_registered(spec: str) -> Checkpoint:
    name, at, alias = spec.removeprefix("models:/").partition("@")
    if not at:
        name, _, alias = name.partition("/")
    if not (name and alias):
        raise ConfigError(f"{spec!r} is no model; expected models:/NAME@ALIAS or models:/NAME/1")
    mlflow = client()
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    try:
        if at:
            version = mlflow.get_model_version_by_alias(name, alias)
        else:
            version = mlflow.get_model_version(name, alias)
        source = f"{version.source}/{CHECKPOINT}"
        with TemporaryDirectory() as folder:
            fetched = download_artifacts(
                artifact_uri=source, dst_path=folder, tracking_uri=tracking_uri()
            )
            return _load_file(Path(fetched), spec)
    except (MlflowException, OSError) as error:
        raise ConfigError(f"no model {spec} in MLflow at {tracking_uri()}: {error}") from error
