"""The progressive pass, and the command around it; MLflow is left to test_tracking."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from btb.cli import app
from btb.errors import ConfigError
from btb.traces import Trace, open_windows
from btb.traces.generate import make_windows, row, write_windows
from btb.traces.parameters import make_parameters
from btb.training import Pass, run_pass
from forecasting.arrival import Arrival
from models import make_models
from models.base import CountModel, Features
from models.checkpoint import Checkpoint, from_json, load, to_json
from models.combiner import TRAINED, Combined
from models.counts import Counts
from models.ewma import Ewma

SHARED = Path(__file__).parents[1].parent / "shared" / "data"
MOONCAKE = SHARED / "mooncake_conversation_trace.jsonl.zst"


class Diary(Ewma):
    """Writes down what it is asked and told, as (asked or the count, arrivals so far)."""

    def __init__(self, horizon_s: float) -> None:
        super().__init__(horizon_s)
        self.lines: list[tuple[int | None, float]] = []

    def predict_one(self, x: Features) -> Counts:
        self.lines.append((None, x["arrivals"]))
        return super().predict_one(x)

    def learn_one(self, x: Features, count: int) -> None:
        self.lines.append((count, x["arrivals"]))
        super().learn_one(x, count)


def write_trace(path: Path, times_s: Sequence[float], blocks: int = 4) -> Path:
    """Write requests for one prefix of `blocks` blocks of 512 tokens."""
    chain = tuple(range(blocks))
    arrivals = [Arrival(at_s, chain, 512, input_tokens=512 * blocks) for at_s in times_s]
    path.write_text("".join(row(one) + "\n" for one in arrivals), encoding="utf-8")
    return path


def run(
    path: Path, learners: dict[str, dict[float, CountModel]], frozen: Sequence[str] = ()
) -> Pass:
    return run_pass(open_windows([path]), learners, boundary_tokens=2048, frozen=frozen)


def windows_of(folder: Path, family: str, seed: int, **settings: str) -> list[Trace]:
    parameters = make_parameters(family, settings)
    write_windows(folder, make_windows(family, parameters, seed=seed, windows=1), {})
    return open_windows([folder])


def btb_train(*words: object) -> Result:
    return CliRunner().invoke(app, ["train", *map(str, words)], env={"COLUMNS": "120"})


def test_a_label_is_learnt_when_its_horizon_has_passed_and_not_before(tmp_path: Path) -> None:
    # Arrivals at 0, 1, 3 and 9 s, horizon 5 s. After the one at 0 come two within 5 s, after the
    # one at 1 s one, after 3 s none. All three labels are known before the request at 9 s.
    path = write_trace(tmp_path / "trace.jsonl", [0.0, 1.0, 3.0, 9.0])
    diary = Diary(5.0)
    outcome = run(path, {"diary": {5.0: diary}})
    assert diary.lines == [(None, 1), (None, 2), (None, 3), (2, 1), (1, 2), (0, 3), (None, 4)]
    assert (outcome.arrivals, outcome.samples, outcome.unlabelled) == (4, 4, {5.0: 1})
    scores = outcome.scores("diary", 5.0)
    assert (scores.labels, scores.came) == (3, 1.0)


def test_scores_are_of_the_forecast_made_before_learning(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [0.0, 1.0, 3.0, 9.0])
    outcome = run(path, {"twin": {5.0: Ewma(5.0)}})
    # A fresh EWMA: 0.1 * ln 2 / 15 * 5 s times decayed counts of 1, 1.955 and 2.782.
    made = [0.1 * 0.0462098 * 5.0 * count for count in (1.0, 1.954842, 2.782280)]
    assert outcome.scores("twin", 5.0).forecast == pytest.approx(sum(made) / 3.0, rel=1e-5)


def test_a_frozen_learner_predicts_and_does_not_learn(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [float(second) for second in range(60)])
    still, moving = Diary(5.0), Diary(5.0)
    outcome = run(path, {"still": {5.0: still}, "moving": {5.0: moving}}, frozen=["still"])
    assert [count for count, _ in still.lines if count is not None] == []
    assert outcome.scores("moving", 5.0).deviance < outcome.scores("still", 5.0).deviance
    assert outcome.scores("moving", 5.0).labels == outcome.scores("still", 5.0).labels


def test_windows_share_a_model_and_no_prefix(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write_trace(tmp_path / name, [0.0, 1.0, 10.0])
    diary = Diary(5.0)
    run(tmp_path, {"diary": {5.0: diary}})
    asked = [arrivals for count, arrivals in diary.lines if count is None]
    told = [count for count, _ in diary.lines if count is not None]
    assert asked == [1, 2, 3, 1, 2, 3]
    assert told == [1, 0, 1, 0]


def test_a_prompt_that_is_too_short_is_counted_and_not_forecast(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    write_trace(path, [0.0, 1.0, 2.0, 30.0])
    text = path.read_text() + write_trace(tmp_path / "short", [40.0, 41.0], blocks=3).read_text()
    path.write_text(text)
    outcome = run(path, {"diary": {5.0: Diary(5.0)}})
    assert (outcome.arrivals, outcome.samples) == (6, 4)


def test_a_trace_shorter_than_the_horizon_has_nothing_to_score(tmp_path: Path) -> None:
    outcome = run(write_trace(tmp_path / "t.jsonl", [0.0, 1.0]), {"e": {5.0: Ewma(5.0)}})
    with pytest.raises(ConfigError, match="of 2 requests 2 reach the boundary, and none has 5 s"):
        outcome.scores("e", 5.0)


def test_river_beats_the_best_ewma_and_hawkes_on_bursts(tmp_path: Path) -> None:
    windows = windows_of(tmp_path / "day", "mixed", seed=1, duration_s="5400")
    outcome = run_pass(windows, {"river": make_models("river", [15.0])}, boundary_tokens=2048)
    best = outcome.best_baseline(15.0)
    assert best.startswith("ewma")
    assert all(
        outcome.scores(best, 15.0).deviance <= outcome.scores(name, 15.0).deviance
        for name in outcome.baselines
    )
    assert outcome.skill("river", 15.0) > 0.15
    assert outcome.scores("river", 15.0).deviance < 0.95 * outcome.scores("hawkes", 15.0).deviance


@pytest.mark.skipif(not MOONCAKE.is_file(), reason=f"no {MOONCAKE.name} here")
def test_where_almost_nothing_repeats_river_is_within_one_percent_of_the_best() -> None:
    windows = open_windows([MOONCAKE])
    outcome = run_pass(windows, {"river": make_models("river", [15.0])}, boundary_tokens=2048)
    best = min(outcome.scores(name, 15.0).deviance for name in (*outcome.baselines, "hawkes"))
    assert outcome.arrivals == 12_031
    assert outcome.scores("river", 15.0).came < 0.01
    assert outcome.scores("river", 15.0).deviance < 1.01 * best


def test_the_command_scores_saves_and_goes_on(tmp_path: Path) -> None:
    day = tmp_path / "day"
    windows_of(day, "fanout", seed=2, bursts="2", size="40", span_s="20", decoys="60")
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    done = btb_train(day, "--no-mlflow", "--model", "hawkes", "--out", first)
    assert done.exit_code == 0, done.output
    assert "At 15 s, hawkes's Poisson deviance is" in done.output
    assert "best EWMA" in done.output

    again = btb_train(day, "--no-mlflow", "--model", first, "--out", second, "--json", "-")
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)
    rows = {(one["learner"], one["horizon_s"]): one for one in found["results"]}
    assert {learner for learner, _ in rows} == {
        "hawkes",
        "ewma 5 s",
        "ewma 15 s",
        "ewma 60 s",
        "ewma 300 s",
    }
    assert found["best_ewma"]["15"].startswith("ewma")
    assert rows["hawkes", 15.0]["labels"] + found["unlabelled"]["15"] == found["samples"]
    assert rows[found["best_ewma"]["15"], 15.0]["skill"] == 0.0
    kept = load(second)
    assert kept.traces == {"day/window-000": found["traces"][0]["digest"]}
    assert kept.models[15.0].to_state()["seen"] > load(first).models[15.0].to_state()["seen"]  # type: ignore[operator]


def test_a_trace_without_prefixes_is_refused_with_the_reason(tmp_path: Path) -> None:
    rate = tmp_path / "rate.csv"
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [f"2023-11-16 18:15:{second}.0000000,300,10" for second in range(10, 50)]
    rate.write_text("\n".join(lines) + "\n", encoding="utf-8")
    refused = btb_train(rate, "--no-mlflow")
    assert isinstance(refused.exception, ConfigError)
    assert "says nothing of prefixes" in str(refused.exception)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "rivers"], "did you mean 'river'"),
        (["--model", "trace.jsonl"], "is no checkpoint of btb's"),
        (["--out", "."], "can't write"),
        (["--format", "moonkake"], "did you mean 'mooncake'"),
    ],
)
def test_a_wrong_option_is_refused_before_training(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "trace.jsonl", [0.0, 1.0, 100.0])
    refused = btb_train("trace.jsonl", "--no-mlflow", *words)
    assert isinstance(refused.exception, ConfigError)
    assert message in str(refused.exception)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["trace.jsonl"]


def test_trees_are_fitted_on_the_way_and_kept_in_the_checkpoint(tmp_path: Path) -> None:
    day = windows_of(tmp_path / "day", "fanout", 1, bursts="6", size="300", span_s="40")
    model = Combined(5.0)
    outcome = run_pass(day, {"combined": {5.0: model}}, boundary_tokens=2048)
    assert outcome.samples > 1800
    assert TRAINED in model.weights
    text = to_json(Checkpoint("combined", {5.0: model}, 2048))
    assert TRAINED in from_json(text).models[5.0].to_state()["experts"]  # type: ignore[operator]
