"""From the shadow to the throne: what a service keeps in MLflow, and what comes of it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from btb import registry, tracking
from btb.cli import app
from btb.config import ModelSettings
from btb.service.keeper import ModelKeeper
from btb.service.shadow_log import EXPERIMENT, Entry, ShadowLog, write
from forecasting.arrival import Arrival
from models import make_models
from models.checkpoint import Checkpoint
from models.checks import TYPICAL

CHAIN = (1, 2, 3, 4)


def register(came: int) -> registry.Registered:
    """Register models that have seen `came` arrivals follow each of 200 labels."""
    models = make_models("ewma")
    for model in models.values():
        for _ in range(200):
            model.learn_one(TYPICAL, came)
    with tracking.experiment("made").run("by hand") as run:
        return registry.register(run, "chat", Checkpoint("ewma", models, 2048, {"day": "ab12"}))


def one_a_minute(keeper: ModelKeeper, log: ShadowLog, minutes: range) -> list[Entry]:
    """Feed a service two requests each minute, half a second apart, and tick each minute."""
    live, entries = keeper.make_forecaster(), []
    for minute in minutes:
        for at_s in (60.0 * minute, 60.0 * minute + 0.5):
            live.observe(Arrival(at_s, CHAIN, 512, 2048))
        entry = log.tick(60.0 * minute + 30.0)
        if entry is not None:
            entries.append(entry)
    return entries


def test_a_challenger_proves_itself_in_the_shadow_and_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A path of its own: MLflow remembers databases by name, and relative ones are all called alike.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mlflow = tracking.client()
    registry.crown(mlflow, register(came=40))  # expects far too much
    registry.challenge(mlflow, register(came=1))

    keeper = ModelKeeper("models:/chat@champion", ModelSettings(window_s=600.0))
    assert keeper.loaded["champion"].exact == "models:/chat/1"
    assert keeper.loaded["challenger"].exact == "models:/chat/2"
    log = ShadowLog(keeper)
    entries = one_a_minute(keeper, log, range(45))
    # Windows of ten minutes, each closed once a minute has passed after it.
    assert len(entries) == 4
    assert [len(entry.window[15.0]) for entry in entries] == [10, 10, 10, 10]
    assert [len(entry.so_far[15.0]) for entry in entries] == [11, 21, 31, 41]
    write(entries[0])
    assert registry.find(mlflow, "chat", "2").evidence == {}  # type: ignore[union-attr]
    write(entries[-1])

    experiment = mlflow.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    runs = mlflow.search_runs([experiment.experiment_id])
    assert [one.info.run_name for one in runs] == ["chat/2 in the shadow of chat/1"] * 2
    assert runs[0].data.params == {"champion": "models:/chat/1", "challenger": "models:/chat/2"}
    metrics = runs[0].data.metrics
    _, champion, challenger = entries[-1].window[15.0].sum(axis=0) / 20.0
    assert metrics["labels_15s"] == 20.0
    assert metrics["champion_deviance_15s"] == pytest.approx(champion)
    assert metrics["challenger_deviance_15s"] == pytest.approx(challenger)
    assert metrics["change_high_15s"] < 0.0

    told = CliRunner().invoke(app, ["promote", "chat", "--json", "-"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["reason"].startswith("in the shadow, against version 1: Poisson")
    in_shadow = keeper.loaded["challenger"].checkpoint.models
    keeper.take(keeper.fetch())
    assert keeper.loaded.keys() == {"champion"}
    assert keeper.loaded["champion"].exact == "models:/chat/2"
    assert keeper.champion.models is in_shadow  # with what it has learnt here
    assert keeper.stage.shadow is None
    rest = log.tick(60.0 * 46)  # what was left of the contest when it ended
    assert rest is not None
    assert len(rest.window[15.0]) == 5 - 1
    assert log.tick(60.0 * 80) is None

    unlucky = Entry("models:/chat/1", "models:/gone/7", rest.window, rest.so_far)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://nowhere")
    write(unlucky)  # is reported in the log of the service, and nothing else
