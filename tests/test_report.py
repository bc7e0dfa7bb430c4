import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from btb.commands.compare_log import log_comparison
from btb.simulation.cells import Outcome
from btb.simulation.json_report import to_json
from btb.simulation.pictures import draw_all, pictures
from btb.simulation.report import build_report
from btb.simulation.result import Result, Transfer
from btb.simulation.summary import Comparison, differences, figures
from btb.simulation.tables import COLUMNS, best_rows
from btb.simulation.wording import headlines, sentence
from btb.tracking import client

VOID = {"meta", "br", "hr", "img", "input", "link"}


def outcome(
    ttft_s: list[float], *, copies: int = 0, unused: int = 0, cpu_s: float = 0.5
) -> Outcome:
    """A window with a request every 10 s; of each prompt of 1,000 tokens 250 were in HBM."""
    count = len(ttft_s)
    arrived_s = np.arange(count, dtype=np.float64) * 10.0
    transfers = tuple(
        Transfer(5.0 * k, 5.0 * k + 0.01, 0, 1 + k % 3, "hbm", 7, 4, 1e9, True, k >= unused, "hot")
        for k in range(copies)
    )
    return Outcome(
        Result(
            arrived_s=arrived_s,
            ttft_s=np.array(ttft_s),
            finished_s=arrived_s + np.array(ttft_s),
            replica=np.zeros(count, dtype=np.int64),
            input_tokens=np.full(count, 1000),
            hit_tokens={"hbm": np.full(count, 250), "copied": np.full(count, 100 * (copies > 0))},
            transfers=transfers,
            decisions={"least <loaded>": count},
        ),
        cpu_s,
    )


def comparison(windows: int = 3, *, copies: int = 6, setups: int = 1) -> Comparison:
    """`fast` halves the time of each request of `slow`, and moves some copies for it."""
    names = tuple(f"setup{k}" for k in range(setups))
    slow = [[0.2 + 0.1 * ((k * 7 + w) % 13) for k in range(40)] for w in range(windows)]
    runs = {}
    for name in names:
        runs[name, "slow"] = tuple(outcome(ttft_s) for ttft_s in slow)
        runs[name, "fast:copies=2"] = tuple(
            outcome([s / 2 for s in ttft_s], copies=copies, unused=copies // 3) for ttft_s in slow
        )
    return Comparison(
        engine="causal",
        trace="a <b> & c.jsonl",
        digest="d1ge57",
        windows=tuple(f"w{k}" for k in range(windows)),
        setups=names,
        policies=("slow", "fast:copies=2"),
        model="river",
        seed=3,
        runs=runs,
    )


def page(made: Comparison) -> str:
    rows = figures(made)
    return build_report(
        made,
        rows,
        differences(made),
        draw_all(made, rows),
        assumptions=("Blocks are held once computed.",),
        origin={"machine": "2 cores", "SHA-256 of the trace": made.digest},
        notes=["1 bad row <left> out"],
    )


class Walk(HTMLParser):
    """Goes through a page: every tag is closed in order, ids are unique, links lead somewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"] or "")
        self.targets += [found[name] or "" for name in ("href", "src") if name in found]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text() -> str:
    return page(comparison(setups=2))


def test_the_page_is_well_formed_and_its_links_lead_somewhere(text: str) -> None:
    walk = Walk(text)
    assert walk.open == []
    assert len(walk.ids) == len(set(walk.ids))
    assert {target[1:] for target in walk.targets} <= set(walk.ids)
    assert walk.tags.count("svg") == 2 * 5


def test_the_page_loads_nothing(text: str) -> None:
    assert not re.search(r"""(src|href|action|data)\s*=\s*["']?\s*(https?:|//)""", text)
    assert "url(http" not in text
    assert "@import" not in text
    assert "<script" not in text
    assert "<link" not in text


def test_what_users_and_policies_wrote_is_escaped(text: str) -> None:
    assert "a &lt;b&gt; &amp; c.jsonl" in text
    assert "least &lt;loaded&gt;" in text
    assert "1 bad row &lt;left&gt; out" in text
    assert "<b>" not in text


def test_the_page_says_what_it_rests_on(text: str) -> None:
    assert "Blocks are held once computed." in text
    assert "d1ge57" in text
    assert "prefers-color-scheme: dark" in text
    assert 'scope="row"' in text
    assert 'role="img" aria-label="How long requests waited' in text


def test_the_page_is_the_same_on_each_run(text: str) -> None:
    assert page(comparison(setups=2)) == text


def test_one_window_with_nothing_moved_makes_a_page_without_a_timeline() -> None:
    walk = Walk(page(comparison(windows=1, copies=0)))
    assert walk.tags.count("svg") == 4


def test_one_request_makes_a_page_that_gives_no_interval() -> None:
    made = comparison(windows=1, copies=0)
    runs = {key: (outcome([0.5]),) for key in made.runs}
    text = page(replace(made, runs=runs))
    assert "no interval" in text


def test_the_figures_are_those_of_all_windows_together() -> None:
    made = comparison()
    slow, fast = figures(made)
    pooled = np.sort(np.concatenate([run.result.ttft_s for run in made.runs["setup0", "slow"]]))
    assert slow.requests == 120
    assert slow.ttft_mean_s == pytest.approx(pooled.mean())
    assert slow.ttft_p95_s == pooled[114]
    assert fast.ttft_p99_s == pooled[118] / 2
    assert (slow.hit_rate, fast.hit_rate) == (0.25, 0.35)
    assert fast.hit_rate_by_tier == {"hbm": 0.25, "copied": 0.1}
    assert (fast.moved_bytes, fast.wasted_bytes, fast.copies) == (18e9, 6e9, 18)
    assert fast.sim_requests_per_cpu_s == 80.0  # 120 requests in 3 x 0.5 s
    assert fast.decisions == {"least <loaded>": 120}


def test_a_policy_that_halves_each_time_has_half_the_mean_for_certain() -> None:
    found = differences(comparison())
    assert [(one.policy, one.baseline) for one in found] == [("fast:copies=2", "slow")]
    assert found[0].paired.mean_change == pytest.approx(-0.5)
    assert found[0].paired.mean_change_ci == pytest.approx((-0.5, -0.5))
    assert found[0].paired.clusters == 21  # 3 windows of 390 s


def test_runs_on_other_arrivals_are_no_pair() -> None:
    made = comparison(windows=1)
    runs = {**made.runs, ("setup0", "slow"): (outcome([0.1] * 39),)}
    with pytest.raises(AssertionError, match="not the same arrivals"):
        differences(replace(made, runs=runs))


def test_json_has_the_promised_fields_and_no_nan() -> None:
    made = comparison(windows=1, copies=0)
    runs = {key: (outcome([0.5]),) for key in made.runs}
    made = replace(made, runs=runs)
    content = to_json(
        made, figures(made), differences(made), assumptions=("one",), machine="2 cores"
    )
    content = json.loads(json.dumps(content, allow_nan=False))
    assert set(content) >= {
        "engine",
        "trace",
        "results",
        "paired",
        "assumptions",
        "machine",
        "seed",
    }
    assert set(content["results"][0]) >= {
        *("setup", "policy", "requests", "ttft_mean_s", "ttft_p50_s", "ttft_p95_s", "ttft_p99_s"),
        *("hit_rate", "moved_bytes", "wasted_bytes", "sim_requests_per_cpu_s"),
    }
    assert set(content["paired"][0]) >= {
        *("setup", "policy", "baseline", "ttft_mean_diff_s", "ttft_mean_diff_ci_s"),
        *("ttft_mean_change", "ttft_mean_change_ci", "ttft_p95_change", "ttft_p95_change_ci"),
    }
    assert content["paired"][0]["ttft_mean_diff_ci_s"] == [None, None]


def test_sentences_say_what_changed_and_what_it_took() -> None:
    made = comparison()
    slow, fast = figures(made)
    (found,) = differences(made)
    assert sentence(slow, None) == (
        "slow: mean TTFT 788 ms, which the others are held against; moved nothing."
    )
    said = sentence(fast, found)
    assert said == (
        "fast:copies=2: mean TTFT 50 % lower than slow (95 % interval 50 to 50), moved 18 GB, "
        "of which 33 % was never used."
    )
    assert headlines([slow, fast], [found]) == [said]


def test_a_headline_over_setups_counts_them() -> None:
    made = comparison(setups=2)
    assert headlines(figures(made), differences(made)) == [
        "fast:copies=2: mean TTFT against slow 50 % lower on 2 of 2 setups."
    ]


def test_the_best_value_is_marked_unless_all_are_alike() -> None:
    rows = figures(comparison())
    assert best_rows(COLUMNS[0], rows) == {1}
    assert best_rows(COLUMNS[0], [rows[0], rows[0]]) == set()


def test_mlflow_gets_a_run_with_the_report_and_below_it_one_a_setup_and_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    made = comparison()
    rows, found = figures(made), differences(made)
    drawn = {"setup0": pictures(made, "setup0", rows)[:1]}
    content = to_json(made, rows, found, assumptions=(), machine="2 cores")
    log_comparison(made, content, drawn, "<!DOCTYPE html>")

    mlflow = client()
    known = mlflow.get_experiment_by_name("btb compare")
    assert known is not None
    runs = {run.info.run_name: run for run in mlflow.search_runs([known.experiment_id])}
    parent = runs.pop(made.trace)
    assert sorted(runs) == ["fast:copies=2 on setup0", "slow on setup0"]
    for run in runs.values():
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    fast = runs["fast:copies=2 on setup0"].data.metrics
    assert fast["ttft_mean_change"] == pytest.approx(-0.5)
    assert (fast["moved_bytes"], fast["hit_rate_copied"]) == (18e9, 0.1)
    stored = {file.path for file in mlflow.list_artifacts(parent.info.run_id)}
    assert stored == {"report.html", "compare.json", "setup0"}
