"""Learners that a group of features is kept from."""

import json
from pathlib import Path

from typer.testing import CliRunner

from btb.cli import app
from models.ablation import GROUPS, Without
from models.boosted import Boosted
from models.checks import TYPICAL
from models.combiner import Combined


def test_each_feature_is_in_one_group() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(TYPICAL)


def test_what_only_one_group_tells_cannot_be_learnt_without_it() -> None:
    log = [({**TYPICAL, "depth_tokens": 1024.0 * (1 + k % 2)}, 4 * (k % 2)) for k in range(2000)]
    told = {}
    for group in ("lengths", "others"):
        model = Without(Boosted(15.0), GROUPS[group])
        model.fit([x for x, _ in log], [count for _, count in log], seed=1)
        told[group] = [round(model.predict_one(x).mean) for x, _ in log[:2]]
    assert told == {"lengths": [2, 2], "others": [0, 4]}


def test_keeping_features_from_a_learner_changes_nothing_that_it_was_told() -> None:
    x = dict(TYPICAL)
    model = Without(Combined(15.0), GROUPS["gaps"])
    model.learn_one(x, 3)
    model.predict_one(x)
    assert x == TYPICAL


def test_train_shows_what_each_group_is_worth(tmp_path: Path) -> None:
    runner = CliRunner()
    made = runner.invoke(
        app, ["generate", "agents", "duration_s=300", "--seed", "1", "--out", str(tmp_path / "day")]
    )
    assert made.exit_code == 0, made.output
    shown = runner.invoke(
        app,
        ["train", str(tmp_path / "day"), "--model", "hawkes", "--ablation", "--no-mlflow"],
    )
    assert shown.exit_code == 0, shown.output
    assert all(f"without {group}" in shown.output for group in GROUPS)
    found = runner.invoke(
        app,
        [
            *("train", str(tmp_path / "day"), "--model", "hawkes", "--ablation", "--no-mlflow"),
            *("--json", "-"),
        ],
    )
    rows = {(row["learner"], row["horizon_s"]): row for row in json.loads(found.stdout)["results"]}
    whole = rows["hawkes", 15.0]["deviance"]
    assert rows["without counts", 15.0]["deviance"] > whole  # it looks at nothing else
    assert rows["without bursts", 15.0]["deviance"] == whole
