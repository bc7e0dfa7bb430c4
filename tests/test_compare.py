import html
import json
import math
import os
import re
import sys
from dataclasses import fields, replace
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from btb.cli import app
from btb.errors import ConfigError
from btb.simulation.cells import (
    Cell,
    Outcome,
    cell_digest,
    digest_sources,
    load_outcome,
    save_outcome,
)
from btb.simulation.compare import collect, run_cells, simulate_cell, stored_outcomes
from btb.simulation.plan import Plan, Windows, plan_cells, policy_from, starting_models
from btb.simulation.pool import work_off
from btb.simulation.result import Result, Transfer
from btb.simulation.summary import differences, figures
from btb.traces import ReaderOptions
from models import checkpoint

CELL = Cell("digest", "mooncake", "w0", 0, "70b_h100x4", "random", "c0de", "causal", "", seed=1)
ENGINE = "prototype"
POLICIES = ("least_load", "round_robin")


def write_windows(folder: Path, count: int = 2) -> Path:
    """Windows of 40 requests in 2 minutes, in Mooncake's format; four share each prefix."""
    folder.mkdir()
    for window in range(count):
        rows = [
            {
                "timestamp": 3000 * k,
                "input_length": 512 * 5,
                "output_length": 4,
                "hash_ids": [*range(100 * (k // 4), 100 * (k // 4) + 4), 10_000 + 100 * window + k],
            }
            for k in range(40)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"w{window}.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Windows:
    return Windows((write_windows(tmp_path_factory.mktemp("traces") / "windows"),))


def outcome(ttft_s: float = 0.5, copies: int = 2) -> Outcome:
    key = 2**100 + 1  # some hashes have 128 bits
    transfer = Transfer(0.0, 0.25, 0, 1, "hbm", key, 4, 1e9, asked=True, used=False, reason="hot ☀")
    return Outcome(
        Result(
            arrived_s=np.array([0.0, 1.0]),
            ttft_s=np.array([ttft_s, 1.0]),
            finished_s=np.array([1.0, 2.0]),
            replica=np.array([0, 3]),
            input_tokens=np.array([512, 1024]),
            hit_tokens={"hbm": np.array([0, 512]), "copied": np.array([1, 0])},
            transfers=(transfer,) * copies,
            decisions={"warm": 2},
        ),
        cpu_s=0.125,
        notes=("2 bad rows left out",),
    )


def same(one: Result, other: Result) -> bool:
    for field in fields(Result):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray) or field.name == "hit_tokens":
            np.testing.assert_equal(a, b)
        elif a != b:
            return False
    return True


@pytest.mark.parametrize("copies", [0, 2])
def test_a_stored_outcome_comes_back_as_it_was(tmp_path: Path, copies: int) -> None:
    made = outcome(copies=copies)
    save_outcome(tmp_path / "a.npz", made)
    back = load_outcome(tmp_path / "a.npz")
    assert back is not None
    assert same(back.result, made.result)
    assert (back.cpu_s, back.notes) == (made.cpu_s, made.notes)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_torn_or_missing_outcome_is_none(tmp_path: Path) -> None:
    save_outcome(tmp_path / "a.npz", outcome())
    whole = (tmp_path / "a.npz").read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "torn.npz").write_bytes(whole[:size])
        assert load_outcome(tmp_path / "torn.npz") is None
    assert load_outcome(tmp_path / "missing.npz") is None


def test_all_that_a_result_depends_on_changes_the_digest_and_nothing_else() -> None:
    first = cell_digest(CELL, "sources")
    changes: dict[str, Any] = dict.fromkeys([field.name for field in fields(Cell)], "other")
    for name, value in (changes | {"index": 7, "seed": 7}).items():
        changed = replace(CELL, **{name: value})
        assert (cell_digest(changed, "sources") == first) == (name == "index"), name
    assert cell_digest(CELL, "new sources") != first
    assert digest_sources() == digest_sources()


def test_a_policy_is_made_from_its_name_and_settings() -> None:
    assert type(policy_from("random", 1)).__name__ == "RandomReplica"
    assert type(policy_from("policies.fixed:LeastLoad", 1)).__name__ == "LeastLoad"
    assert type(policy_from("early_rdma:copies=2,window_s=1", 1)).__name__ == "EarlyRdma"
    assert type(policy_from("policies.early_rdma:EarlyRdma:copies=2", 1)).__name__ == "EarlyRdma"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("cache_awre", "did you mean 'cache_aware'"),
        ("early_rdma:copis=2", "did you mean 'copies'"),
        ("early_rdma:copies=two", "copies must be int, got 'two'"),
        ("early_rdma:copies=2,fast", "'fast' is no setting"),
        ("=2", "is no setting"),
        ("", "no policy is called ''"),
    ],
)
def test_a_wrong_policy_is_answered_with_the_nearest_one(spec: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        policy_from(spec, 0)


def test_an_engine_may_run_another_policy_by_the_same_name() -> None:
    stand_ins = {"early_rdma": "article_early_rdma"}
    assert type(policy_from("early_rdma:copies=2", 1, stand_ins)).__name__ == "EarlyRdma"
    assert type(policy_from("random", 1, {"random": "least_load"})).__name__ == "LeastLoad"


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(("70b_h100",), POLICIES, ENGINE), "did you mean '70b_h100x4'"),
        (Plan(("70b_h100x4",), POLICIES, "prototyp"), "did you mean 'prototype'"),
    ],
)
def test_a_wrong_setup_or_engine_is_answered_with_the_nearest_one(plan: Plan, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_cells(plan, [], ReaderOptions(), "")


def test_cells_go_window_by_window_and_a_policy_named_twice_runs_once(windows: Windows) -> None:
    plan = Plan(("70b_h100x4", "glm45_h100x4"), ("random", "least_load", "random"), ENGINE)
    cells = plan_cells(plan, windows.open(), windows.options, "")
    assert [cell.index for cell in cells] == [0] * 4 + [1] * 4
    assert {(cell.setup, cell.policy) for cell in cells} == {
        (setup, policy) for setup in plan.setups for policy in ("random", "least_load")
    }


def test_only_policies_that_look_at_forecasts_depend_on_the_model(windows: Windows) -> None:
    plan = Plan(("70b_h100x4",), ("least_load", "btb"), "causal")
    opened = windows.open()[:1]
    one, other = (plan_cells(plan, opened, windows.options, models) for models in ("a", "b"))
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False]


def test_forecasts_start_from_the_model_that_is_named(windows: Windows) -> None:
    plan = Plan(("70b_h100x4",), ("btb",), "causal", model="ewma")
    models = starting_models(plan)
    assert checkpoint.from_json(models).name == "ewma"
    cells = plan_cells(plan, windows.open(), windows.options, models)
    first, again = (simulate_cell(windows, models, cells[0]).result for _ in range(2))
    assert same(first, again)
    assert starting_models(replace(plan, policies=("random",))) == ""
    with pytest.raises(ConfigError, match="did you mean 'ewma'"):
        starting_models(replace(plan, model="ewmaa"))


def compared(windows: Windows, policies: tuple[str, ...]) -> list[float]:
    plan = Plan(("70b_h100x4",), policies, ENGINE)
    cells = plan_cells(plan, windows.open(), windows.options, "")
    made = collect(plan, "windows", cells, run_cells(cells, partial(simulate_cell, windows, "")))
    assert made.windows == ("windows/w0", "windows/w1")
    assert [row.requests for row in figures(made)] == [80] * len(policies)
    (found,) = differences(made)
    paired = found.paired
    assert paired.clusters == 4
    return [paired.mean_diff_s, *paired.mean_diff_ci_s, paired.p95_change, *paired.p95_change_ci]


def test_a_policy_against_itself_differs_by_exactly_nothing(windows: Windows) -> None:
    assert compared(windows, ("random", "random")) == [0.0] * 6


def test_two_policies_see_the_same_arrivals_and_differ(windows: Windows) -> None:
    assert all(math.isfinite(figure) for figure in compared(windows, POLICIES))


class Counter:
    """Simulates by formula, and counts; stops as Ctrl-C does after `stop_after` cells."""

    def __init__(self, stop_after: int = 1000) -> None:
        self.ran: list[int] = []
        self._stop_after = stop_after

    def __call__(self, cell: Cell) -> Outcome:
        if len(self.ran) == self._stop_after:
            raise KeyboardInterrupt
        self.ran.append(cell.index)
        return outcome(ttft_s=0.5 + cell.index)


def test_what_was_finished_before_ctrl_c_is_not_run_again(tmp_path: Path) -> None:
    cells = [replace(CELL, window=f"w{k}", index=k) for k in range(5)]
    stopped, rest = Counter(stop_after=2), Counter()
    with pytest.raises(KeyboardInterrupt):
        run_cells(cells, stopped, store=tmp_path)
    done = stored_outcomes(cells, tmp_path)
    assert [cell.index for cell in done] == stopped.ran == [0, 1]
    done |= run_cells([cell for cell in cells if cell not in done], rest, store=tmp_path)
    assert rest.ran == [2, 3, 4]
    assert [done[cell].result.ttft_s[0] for cell in cells] == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert set(stored_outcomes(cells, tmp_path)) == set(cells)


def test_work_is_spread_over_processes_and_each_item_keeps_its_answer() -> None:
    found = dict(work_off(math.factorial, list(range(12)), jobs=2))
    assert found == {n: math.factorial(n) for n in range(12)}


def test_no_process_is_left_when_the_caller_stops() -> None:
    others = set(active_children())
    going = work_off(math.factorial, list(range(50)), jobs=2)
    next(going)
    workers = set(active_children()) - others
    going.close()
    assert len(workers) == 2
    for worker in workers:
        worker.join(10)
        with pytest.raises(ProcessLookupError):
            os.kill(worker.pid or 0, 0)


def test_an_error_in_another_process_names_the_item() -> None:
    with pytest.raises(ValueError, match="factorial") as caught:
        dict(work_off(math.factorial, [3, -1, 5], jobs=2))
    assert caught.value.__notes__ == ["while working on -1"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["compare", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


BASE = ("--engine", ENGINE, "--policy", "least_load", "--policy", "round_robin", "--no-mlflow")


def test_json_to_stdout_is_only_json(windows: Windows) -> None:
    folder = str(windows.paths[0])
    content = json.loads(run(folder, *BASE, "--jobs", "1", "--json", "-"))
    assert content["engine"] == ENGINE
    assert [row["policy"] for row in content["results"]] == list(POLICIES)
    assert [row["requests"] for row in content["results"]] == [80, 80]
    assert content["paired"][0]["baseline"] == "least_load"
    low, high = content["paired"][0]["ttft_mean_change_ci"]
    assert low <= content["paired"][0]["ttft_mean_change"] <= high
    assert content["assumptions"]


def test_the_terminal_shows_a_table_and_a_sentence_a_policy(windows: Windows) -> None:
    shown = run(str(windows.paths[0]), *BASE, "--jobs", "1")
    assert "70b_h100x4" in shown
    assert "least_load: mean TTFT" in shown
    assert "round_robin: mean TTFT" in shown


def test_a_second_run_takes_its_cells_from_the_first(windows: Windows, tmp_path: Path) -> None:
    arguments = ["compare", str(windows.paths[0]), *BASE, "--jobs", "1", "--report", str(tmp_path)]
    first = CliRunner().invoke(app, [*arguments, "--json", "-"], catch_exceptions=False)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    again = CliRunner().invoke(app, [*arguments, "--json", "-"], catch_exceptions=False)
    assert "taken from an earlier run" not in first.stderr
    assert "4 of 4 cells taken from an earlier run" in again.stderr
    assert first.stdout == again.stdout
    assert page == (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "round_robin against least_load" in page


def test_rows_that_were_left_out_are_told(windows: Windows, tmp_path: Path) -> None:
    rows = (windows.paths[0] / "w0.jsonl").read_text(encoding="utf-8")
    (tmp_path / "w.jsonl").write_text(rows + "{}\n", encoding="utf-8")
    arguments = ["compare", str(tmp_path / "w.jsonl"), *BASE, "--max-bad-share", "0.1"]
    result = CliRunner().invoke(app, [*arguments, "--jobs", "1"], catch_exceptions=False)
    assert "note: w: 1 row couldn't be read" in result.stderr
    assert "w.jsonl:41" in result.stderr


def test_a_policy_of_ones_own_is_found_in_the_folder_one_is_in(
    windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from policies.fixed import LeastLoad\n\n\nclass Mine(LeastLoad):\n    pass\n"
    (tmp_path / "my_rules.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    shown = run(str(windows.paths[0]), *BASE, "--policy", "my_rules:Mine", "--jobs", "1")
    assert "my_rules:Mine: mean TTFT the same as least_load" in shown


def test_bounds_add_clairvoyant_and_the_regret_of_each_policy(tmp_path: Path) -> None:
    folder, out = write_windows(tmp_path / "windows", count=1), tmp_path / "out"
    words = ["compare", str(folder), "--bounds", "--no-mlflow", "--jobs", "1"]
    words += ["--policy", "cache_aware", "--policy", "round_robin"]
    ran = CliRunner().invoke(app, [*words, "--json", "-"])
    assert ran.exit_code == 0, ran.output
    content = json.loads(ran.stdout)
    rows = {row["policy"]: row for row in content["results"]}
    assert list(rows) == ["cache_aware", "round_robin", "clairvoyant"]
    (bound,) = content["bounds"]
    for one in content["regret"]:
        mean_s = rows[one["policy"]]["ttft_mean_s"]
        assert one["mean_over_bound"] == mean_s / bound["ttft_mean_s"] >= 1.0 - 1e-9
        assert one["mean_over_clairvoyant"] == mean_s / rows["clairvoyant"]["ttft_mean_s"]
    shown = CliRunner().invoke(app, [*words, "--report", str(out)])
    page = (out / "index.html").read_text(encoding="utf-8")
    for text in (shown.output, page):
        assert "without foresight of a burst's first request" in html.unescape(text)
        assert "regret" in text
    assert "clairvoyant" not in re.findall(r"<p>(.*?)</p>", page)[0]  # it's no policy to choose


def test_what_is_varied_is_in_the_figures_and_makes_other_cells(tmp_path: Path) -> None:
    folder, out = write_windows(tmp_path / "windows", count=1), tmp_path / "out"
    words = ["compare", str(folder), "--policy", "cache_aware", "--no-mlflow", "--jobs", "1"]
    words += ["--report", str(out), "--json", "-"]
    contents = []
    for more in ([], ["--noise", "1", "--noise-seed", "3", "--output-tokens", "99"]):
        ran = CliRunner().invoke(app, [*words, *more])
        assert ran.exit_code == 0, ran.output
        assert "taken from an earlier run" not in ran.output
        contents.append(json.loads(ran.stdout))
    usual, varied = contents
    assert usual["varied"] == {}
    assert varied["varied"] == {"noise_sigma": 1.0, "noise_seed": 3, "output_tokens": 99}
    assert usual["results"][0]["ttft_mean_s"] != varied["results"][0]["ttft_mean_s"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--noise", "1", "--bounds"], "without --noise"),
        (["--engine", "prototype", "--bounds"], "causal engine"),
        (["--engine", "prototype", "--link-share", "0.5"], "causal engine"),
        (["--engine", "prototype", "--policy", "clairvoyant"], "causal engine"),
        (["--hbm-share", "0"], "hbm_share must be above 0"),
        (["--policy", "clairvoyant:tris=3"], "clairvoyant:tries=N"),
        (["--policy", "guarded:mode=on"], "mode must be one of"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path: Path, more: list[str], said: str) -> None:
    folder = write_windows(tmp_path / "windows", count=1)
    ran = CliRunner().invoke(app, ["compare", str(folder), "--no-mlflow", "--jobs", "1", *more])
    assert ran.exit_code != 0
    assert said in str(ran.exception) + ran.output
