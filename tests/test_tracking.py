"""MLflow, in one go: its database takes seconds to make."""

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from btb import registry, tracking
from btb.cli import app
from btb.errors import ConfigError
from btb.traces import open_windows
from btb.traces.generate import row
from forecasting.arrival import Arrival
from models.checks import TYPICAL


def write_day(folder: str, size: int) -> None:
    """Write 50 minutes; in each, a new prefix gets `size` requests, half a second apart."""
    arrivals = [
        Arrival(
            60.0 * minute + 0.5 * k,
            tuple(range(4 * minute, 4 * minute + 4)),
            block_tokens=512,
            input_tokens=2048,
        )
        for minute in range(50)
        for k in range(size)
    ]
    Path(folder).mkdir()
    text = "".join(row(one) + "\n" for one in arrivals)
    Path(folder, "requests.jsonl").write_text(text, encoding="utf-8")


def btb(command: str, *words: str, fails: bool = False) -> str:
    done = CliRunner().invoke(app, [command, *words], env={"COLUMNS": "1000"})
    assert done.exit_code == int(fails), done.exception
    return done.stdout


def champion_version() -> str:
    return str(tracking.client().get_model_version_by_alias("chat", "champion").version)


def test_runs_are_kept_and_only_a_better_model_becomes_champion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*tracking.SETTINGS, "MLFLOW_TRACKING_URI"]:
        monkeypatch.delenv(name, raising=False)
    write_day("day", size=6)
    write_day("changed", size=24)

    said = btb("train", "day", "--name", "chat")
    assert "Registered as models:/chat/1 and, being the first, models:/chat@champion." in said
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert {one.name for one in tmp_path.iterdir()} == {
        "day",
        "changed",
        "mlflow.db",
        "mlartifacts",
    }

    # A worse one, and one that begins anew beside one that knows: both are challengers only.
    said = btb("train", "day", "--name", "chat", "--model", "ewma")
    assert "Registered as models:/chat/2, the challenger; models:/chat/1 stays champion" in said
    said = btb("train", "day", "--name", "chat")
    assert "Registered as models:/chat/3, the challenger" in said
    assert "had learnt from this trace before" in said
    assert champion_version() == "1"

    # One that goes on from the champion is held against it as it was: bursts are larger now.
    said = btb("train", "changed", "--name", "chat", "--model", "models:/chat@champion")
    assert "now models:/chat@champion: Poisson deviance at 15 s" in said
    assert "in 25 minutes, which it went on from" in said
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
    assert files == {"calibration.png", "loss.png", "model", "scores.json"}
    below = [one for one in runs if one.data.tags.get("mlflow.parentRunId") == newest.info.run_id]
    assert {one.data.params["learner"] for one in below} >= {"combined", "champion", "hawkes"}
    trained = next(one for one in below if one.data.params["learner"] == "combined")
    curve = mlflow.get_metric_history(trained.info.run_id, "deviance_by_labels_15s")
    assert curve[-1].step == trained.data.metrics["labels_15s"]

    day, changed = (open_windows([Path(folder)])[0].digest for folder in ("day", "changed"))
    assert source["sha256"] == changed
    assert mlflow.get_model_version("chat", "3").tags["btb.traces"] == day
    both = sha256("\n".join(sorted((day, changed))).encode()).hexdigest()
    assert mlflow.get_model_version("chat", "4").tags["btb.traces"] == both

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

    # What else is in the model's folder is MLflow's; none of it is run or read here.
    for code in (tmp_path / "mlartifacts").rglob("model_code.py"):
        code.write_text("raise SystemExit('somebody else wrote this')")
    assert tracking.load_checkpoint("models:/chat/4").traces == version.traces

    check_promotion()

    with pytest.raises(KeyboardInterrupt), tracking.experiment("other").run("cut") as cut:
        raise KeyboardInterrupt
    assert mlflow.get_run(cut.id).info.status == "KILLED"


def check_promotion() -> None:
    """Version 4 is champion, 3 the challenger, which was held against 1."""
    listed = json.loads(btb("models", "chat", "--json", "-"))
    assert [(one["version"], one["aliases"]) for one in listed] == [
        ("4", ["champion"]),
        ("3", ["challenger"]),
        ("2", []),
        ("1", []),
    ]
    assert [one["learner"] for one in listed] == ["combined", "combined", "ewma", "combined"]
    assert listed[0]["evidence"]["trained"]["better"] is True
    assert listed[2]["evidence"]["trained"]["against"] == "1"
    assert listed[3]["evidence"] == {}
    assert "chat/2 against 1 in training: Poisson deviance at 15 s" in btb("models")

    said = btb("promote", "chat", fails=True)
    assert "models:/chat/3 is not promoted: it was never held against models:/chat/4" in said
    mlflow = tracking.client()
    third = registry.find(mlflow, "chat", "3")
    assert third is not None
    registry.testify(mlflow, third, registry.TRAINED, registry.Evidence("4", True, "ahead"))
    registry.testify(mlflow, third, registry.SHADOW, registry.Evidence("4", False, "by chance"))
    said = btb("promote", "chat", fails=True)  # what happened in the shadow counts for more
    assert "not promoted: in the shadow, against version 4: by chance." in said
    registry.testify(mlflow, third, registry.SHADOW, registry.Evidence("4", True, "ahead"))
    told = json.loads(btb("promote", "chat", "--json", "-"))
    assert told == {
        "spec": "models:/chat/3",
        "promoted": True,
        "reason": "in the shadow, against version 4: ahead",
        "champion": "models:/chat/3",
    }
    assert champion_version() == "3"
    assert "it is the champion" in btb("promote", "chat", "--version", "3", fails=True)
    assert "by hand" in btb("promote", "chat", "--version", "2", "--anyway")
    assert champion_version() == "2"
    for words, reason in (
        (["chat"], "chat has no challenger; known versions: 4, 3, 2, 1"),
        (["chat", "--version", "9"], "chat has no version 9"),
        (["nobody"], "nobody has no challenger; known versions: none"),
    ):
        refused = CliRunner().invoke(app, ["promote", *words])
        assert isinstance(refused.exception, ConfigError)
        assert reason in str(refused.exception)


def test_a_name_that_is_half_a_registered_model_is_refused() -> None:
    for spec in ("models:/chat", "models:/", "models:/@champion"):
        with pytest.raises(ConfigError, match="expected models:/NAME@ALIAS"):
            tracking.load_checkpoint(spec)


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "a@b"])
def test_a_name_that_could_not_be_asked_for_is_refused_before_training(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_day("day", size=2)
    refused = CliRunner().invoke(app, ["train", "day", "--name", name])
    assert isinstance(refused.exception, ConfigError)
    assert [one.name for one in tmp_path.iterdir()] == ["day"]


def test_an_mlflow_that_is_not_there_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    with pytest.raises(ConfigError, match="can't use MLflow at nonsense://nowhere"):
        tracking.experiment("any")
