"""Alarms held against bursts: by hand on small traces, and the command around it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from btb import tracking
from btb.cli import app
from btb.errors import ConfigError
from btb.evaluation import BurstKind, Evaluation, Point, evaluate
from btb.traces import open_windows
from btb.traces.generate import row
from forecasting.arrival import Arrival
from models import make_models
from models.base import Features
from models.counts import Counts

PROTOTYPE, MOONCAKE, LLMD = "2 in 1 s (prototype)", "8 in 10 s (Mooncake)", "2 in 0.1 s (llm-d)"
NOTHING = Point(None, 0.0, 0.0)


class After:
    """Is sure of a hundred more from the arrival numbered `seen` of all on, and of none before."""

    def __init__(self, seen: int) -> None:
        self._seen = seen

    def predict_one(self, x: Features) -> Counts:
        return Counts(100.0 if x["arrivals"] >= self._seen else 0.0)

    def learn_one(self, x: Features, count: int) -> None:
        pass


def write_trace(path: Path, times_s: Mapping[int, Sequence[float]], end_s: float = 9_000.0) -> Path:
    """Write requests by prefix, and one of another kind at the end."""
    rows = [(at_s, key) for key, times in times_s.items() for at_s in times] + [(end_s, 0)]
    arrivals = [
        Arrival(at_s, (*range(4 * key, 4 * key + 4), 10_000 + number), 512, input_tokens=2560)
        for number, (at_s, key) in enumerate(sorted(rows))
    ]
    path.write_text("".join(row(one) + "\n" for one in arrivals), encoding="utf-8")
    return path


def run(path: Path, seen: int = 2, kind: BurstKind | None = None) -> Evaluation:
    windows = open_windows([path])
    models = {"after": {60.0: After(seen)}}
    return evaluate(windows, models, kind or BurstKind(), boundary_tokens=2048)


def btb_evaluate(*words: object) -> Result:
    words = ("evaluate", "--no-mlflow", *words)
    return CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "160"})


def test_a_burst_and_a_decoy_are_told_apart_as_worked_by_hand(tmp_path: Path) -> None:
    burst = [100.0 + 0.5 * k for k in range(41)]  # 40 more within 20 s
    decoy = [500.0, 500.05, 500.1]
    outcome = run(write_trace(tmp_path / "trace.jsonl", {1: burst, 2: decoy}), seen=3)
    assert (outcome.arrivals, outcome.episodes, outcome.bursts, outcome.unfinished) == (45, 2, 1, 1)
    assert outcome.point("after", 2) == NOTHING
    assert outcome.point("after", 3) == Point(0.5, 1.0, 2 / 3)  # the decoy has three as well
    assert outcome.point(PROTOTYPE, 1) == NOTHING
    assert outcome.point(PROTOTYPE, 2) == Point(0.5, 1.0, 2 / 3)
    assert outcome.point(LLMD, 5) == Point(0.0, 0.0, 0.0)  # the decoy only
    # Eight within 10 s are there at the eighth, later than is looked at; two within 1 s at 100.5.
    assert outcome.point(MOONCAKE, 5) == NOTHING
    assert outcome.lead(MOONCAKE) == (33.0, 6.5)
    assert outcome.lead(PROTOTYPE) == (39.0, 9.5)  # the 21st comes at 110 s
    assert outcome.lead("after") == (38.0, 9.0)
    assert outcome.lead(LLMD) is None


def test_what_is_not_over_when_the_trace_ends_is_left_out(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", {1: [0.0, 1.0, 2.0]}, end_s=30.0)
    outcome = run(path, seen=1)
    assert (outcome.episodes, outcome.unfinished) == (0, 2)
    assert outcome.point("after", 5) == Point(None, None, None)


def test_a_smaller_and_quicker_kind_of_burst_can_be_asked_for(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", {1: [0.0, 1.0, 2.0], 2: [300.0, 340.0, 380.0]})
    assert run(path, kind=BurstKind(more=2)).bursts == 1
    assert run(path, kind=BurstKind(more=3)).bursts == 0
    assert run(path, kind=BurstKind(more=1)).bursts == 2


def test_a_pause_of_more_than_a_minute_begins_another_episode(tmp_path: Path) -> None:
    outcome = run(write_trace(tmp_path / "trace.jsonl", {1: [0.0, 60.0, 120.1]}))
    assert outcome.episodes == 2


def test_a_job_that_comes_back_is_alarmed_before_its_first_request(tmp_path: Path) -> None:
    starts_s = [600.0 * k for k in range(8) if k != 5]  # one is missed
    times_s = [start_s + 0.5 * k for start_s in starts_s for k in range(30)]
    path = write_trace(tmp_path / "trace.jsonl", {1: times_s}, end_s=7_000.0)
    outcome = run(path, seen=10_000)
    # Three bursts make a schedule, so the fourth, the fifth and the two after the one missed are
    # foreseen. That one's alarm was withdrawn, and so were those after the last.
    assert outcome.bursts == 7
    assert outcome.alarms["after"].true == {0: 4}
    assert outcome.point("after", 0).recall == pytest.approx(4 / 7)
    assert 2 <= outcome.alarms["after"].withdrawn <= 4
    lead = outcome.lead("after")
    assert lead is not None
    assert lead[0] == 30
    assert lead[1] > 10.0 + 5.0  # 10 s from the first to the 21st arrival, and more
    assert outcome.point(PROTOTYPE, 0) == NOTHING


def test_a_model_without_a_forecast_for_that_time_is_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", {1: [0.0]})
    with pytest.raises(ConfigError, match="forecasts 60 s ahead, and not 30"):
        run(path, kind=BurstKind(within_s=30.0))


def test_models_learn_on_the_way(tmp_path: Path) -> None:
    bursts = {key: [1000.0 * key + 0.2 * k for k in range(60)] for key in range(1, 9)}
    path = write_trace(tmp_path / "trace.jsonl", bursts, end_s=20_000.0)
    models = {"sizes": make_models("recurrence")}
    outcome = evaluate(open_windows([path]), models, BurstKind(), boundary_tokens=2048)
    assert outcome.bursts == 8
    by_five = outcome.point("sizes", 5).recall
    assert by_five is not None
    assert 0.0 < by_five < 1.0  # not in the first burst, but later


def test_the_command_prints_a_row_for_each_detector(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", {1: [0.1 * k for k in range(50)]})
    shown = btb_evaluate(path, "--model", "ewma", "--model", "combined")
    assert shown.exit_code == 0, shown.output
    rows = [line.split()[0] for line in shown.stdout.splitlines() if "/" in line[:60]]
    assert rows[:5] == ["ewma", "combined", "2", "8", "2"]
    assert "Episodes: 1, bursts of 20 more in 60 s among them: 1" in shown.stdout


def test_the_command_gives_json(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", {1: [0.1 * k for k in range(50)]})
    content = json.loads(btb_evaluate(path, "--model", "ewma", "--more", 5, "--json", "-").stdout)
    assert content["burst"] == {"more": 5, "within_s": 60.0, "threshold": 0.5}
    assert [one["name"] for one in content["detectors"]] == ["ewma", PROTOTYPE, MOONCAKE, LLMD]
    by_two = content["detectors"][1]["by_arrivals_seen"][2]
    assert by_two == {"seen": 2, "precision": 1.0, "recall": 1.0, "f1": 1.0}


def test_a_time_that_is_no_horizon_is_said_in_one_sentence(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", {1: [0.0]})
    result = btb_evaluate(path, "--within", 30)
    assert isinstance(result.exception, ConfigError)


def test_models_and_rules_are_kept_in_mlflow_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A path of its own: MLflow remembers databases by name, and relative ones are all called alike.
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    burst, decoy = [100.0 + 0.5 * k for k in range(41)], [500.0, 500.05, 500.1]
    path = write_trace(tmp_path / "trace.jsonl", {1: burst, 2: decoy})
    words = ["evaluate", str(path), "--model", "ewma", "--model", "recurrence", "--json", "-"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    mlflow = tracking.client()
    experiment = mlflow.get_experiment_by_name("btb evaluate")
    assert experiment is not None
    runs = mlflow.search_runs([experiment.experiment_id])
    (parent,) = [one for one in runs if "mlflow.parentRunId" not in one.data.tags]
    below = {one.data.params["detector"]: one for one in runs if one is not parent}
    assert below.keys() == {"ewma", "recurrence", PROTOTYPE, MOONCAKE, LLMD}
    assert {one.data.tags["mlflow.parentRunId"] for one in below.values()} == {parent.info.run_id}
    models = {name for name, one in below.items() if one.data.params["kind"] == "model"}
    assert models == {"ewma", "recurrence"}
    assert parent.data.params["model"] == "ewma recurrence"
    assert parent.data.metrics == {"episodes": 2.0, "bursts": 1.0}
    assert parent.inputs is not None
    source = json.loads(parent.inputs.dataset_inputs[0].dataset.source)
    assert source["sha256"] == open_windows([path])[0].digest
    precision = mlflow.get_metric_history(below[PROTOTYPE].info.run_id, "precision")
    # None has sounded by 0 or 1 arrivals, so there is nothing to be precise about.
    assert [(one.step, one.value) for one in precision] == [(2, 0.5), (3, 0.5), (5, 0.5)]
    assert below[PROTOTYPE].data.metrics["lead_s"] == 9.5
    assert "lead_s" not in below[LLMD].data.metrics
    files = {one.path for one in mlflow.list_artifacts(parent.info.run_id)}
    assert files == {"alarms.json", "alarms.png"}
    kept = mlflow.download_artifacts(parent.info.run_id, "alarms.json", str(tmp_path))
    assert json.loads(Path(kept).read_text(encoding="utf-8")) == json.loads(done.stdout)
