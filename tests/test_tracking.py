"""MLflow, in one go: its database takes seconds to make."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from btb import tracking
from btb.cli import app
from btb.errors import ConfigError
from btb.traces.generate import make_windows, write_windows
from btb.traces.parameters import make_parameters
from models.checks import TYPICAL


def write_day(folder: str, span_s: str) -> None:
    given = {"bursts": "2", "size": "60", "span_s": span_s, "decoys": "20"}
    parameters = make_parameters("fanout", given)
    write_windows(Path(folder), make_windows("fanout", parameters, seed=1, windows=1), {})


def train(*words: str) -> str:
    done = CliRunner().invoke(app, ["train", *words], env={"COLUMNS": "1000"})
    assert done.exit_code == 0, done.exception
    return done.stdout


def champion_version() -> str:
    return str(tracking.client().get_model_version_by_alias("chat", "champion").version)


def test_runs_are_kept_and_only_a_better_model_becomes_champion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*tracking.SETTINGS, "MLFLOW_TRACKING_URI"]:
        monkeypatch.delenv(name, raising=False)
    write_day("day", span_s="20")
    write_day("changed", span_s="2")

    said = train("day", "--name", "chat")
    assert "Registered as models:/chat/1 and, being the first, models:/chat@champion." in said
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert {one.name for one in tmp_path.iterdir()} == {
        "day",
        "changed",
        "mlflow.db",
        "mlartifacts",
    }

    # A worse one, and one that begins anew beside one that knows: both are versions only.
    assert "stays as it was" in train("day", "--name", "chat", "--model", "ewma")
    assert "had learnt from this trace before" in train("day", "--name", "chat")
    assert champion_version() == "1"

    # One that goes on from the champion is held against it as it was: bursts are faster now.
    said = train("changed", "--name", "chat", "--model", "models:/chat@champion")
    assert "now models:/chat@champion" in said
    assert "which it went on from" in said
    assert champion_version() == "4"

    mlflow = tracking.client()
    experiment = mlflow.get_experiment_by_name("btb train")
    assert experiment is not None
    runs = mlflow.search_runs([experiment.experiment_id])
    parents = [one for one in runs if "mlflow.parentRunId" not in one.data.tags]
    assert len(parents) == 4
    assert {one.info.status for one in runs} == {"FINISHED"}
    newest = parents[0]
    assert newest.data.params["model"] == "models:/chat@champion"
    assert newest.data.metrics["deviance_15s"] > 0.0
    assert newest.inputs is not None
    source = json.loads(newest.inputs.dataset_inputs[0].dataset.source)
    assert len(source["sha256"]) == 64
    files = {one.path for one in mlflow.list_artifacts(newest.info.run_id)}
    assert files == {"calibration.png", "loss.png", "model"}
    below = [one for one in runs if one.data.tags.get("mlflow.parentRunId") == newest.info.run_id]
    assert {one.data.params["learner"] for one in below} >= {"river", "champion", "hawkes"}
    river = next(one for one in below if one.data.params["learner"] == "river")
    curve = mlflow.get_metric_history(river.info.run_id, "deviance_by_labels_15s")
    assert curve[-1].step == river.data.metrics["labels_15s"]

    version = tracking.load_checkpoint("models:/chat/4")
    aliased = tracking.load_checkpoint("models:/chat@champion")
    for horizon_s, model in version.models.items():
        assert aliased.models[horizon_s].predict_one(TYPICAL) == model.predict_one(TYPICAL)
    model_files = [one.name for one in (tmp_path / "mlartifacts").rglob("*") if one.is_file()]
    assert not [name for name in model_files if name.endswith((".pkl", ".pickle"))]

    with tracking.quiet():
        from mlflow import pyfunc
        from pandas import DataFrame  # type: ignore[import-untyped]

        loaded = pyfunc.load_model(mlflow.get_model_version("chat", "4").source)
        answer = loaded.predict(DataFrame([TYPICAL, TYPICAL]))
    expected = version.models[15.0].predict_one(TYPICAL)
    assert list(answer["mean_15s"]) == [expected.mean] * 2
    assert list(answer["shape_15s"]) == [expected.shape] * 2

    for spec in ("models:/chat@nobody", "models:/chat/99", "models:/nothing@champion"):
        with pytest.raises(ConfigError, match="no model models:/"):
            tracking.load_checkpoint(spec)

    with pytest.raises(KeyboardInterrupt), tracking.experiment("other").run("cut") as cut:
        raise KeyboardInterrupt
    assert mlflow.get_run(cut.id).info.status == "KILLED"


def test_a_name_that_is_half_a_registered_model_is_refused() -> None:
    for spec in ("models:/chat", "models:/", "models:/@champion"):
        with pytest.raises(ConfigError, match="expected models:/NAME@ALIAS"):
            tracking.load_checkpoint(spec)


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "a@b"])
def test_a_name_that_could_not_be_asked_for_is_refused_before_training(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_day("day", span_s="20")
    refused = CliRunner().invoke(app, ["train", "day", "--name", name])
    assert isinstance(refused.exception, ConfigError)
    assert [one.name for one in tmp_path.iterdir()] == ["day"]


def test_an_mlflow_that_is_not_there_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    with pytest.raises(ConfigError, match="can't use MLflow at nonsense://nowhere"):
        tracking.experiment("any")
