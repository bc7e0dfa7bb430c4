"""`btb generate` and `btb audit` as they are typed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from btb.cli import app
from btb.errors import ConfigError, TraceError


def btb(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture
def windows(tmp_path: Path) -> Path:
    out = tmp_path / "windows"
    done = btb(
        "generate", "fanout", "size=40", "prefix_tokens=4096", "span_s=5", "decoys=20",
        "--windows", "2", "--seed", "5", "--zst", "--out", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return out


def test_generate_says_what_it_wrote(tmp_path: Path) -> None:
    done = btb("generate", "ordinary", "--duration", "60", "--out", tmp_path / "out")
    assert done.exit_code == 0
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["format"] == "btb-windows-1"
    assert (manifest["family"], manifest["seed"], manifest["block_tokens"]) == ("ordinary", 0, 256)
    assert manifest["parameters"]["duration_s"] == 60.0
    (window,) = manifest["windows"]
    assert f"{window['requests']} " in done.stdout
    assert window["file"] in done.stdout


def test_a_folder_with_windows_is_kept_unless_forced(windows: Path) -> None:
    again = btb("generate", "ordinary", "--out", windows)
    assert isinstance(again.exception, ConfigError)
    forced = btb("generate", "ordinary", "--duration", "60", "--out", windows, "--force")
    assert forced.exit_code == 0
    assert sorted(path.name for path in windows.iterdir()) == ["manifest.json", "window-000.jsonl"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ordinary", "--windows", "none"], "--windows must be a number from 1, got 'none'"),
        (["ordinary", "--even"], "ordinary has no parameter 'even'"),
        (["article", "size=3"], "article is rebuilt as it was"),
        (["article"], "article needs --windows FILE with its start times; no file '1'"),
        (["ordinary", "--set", "b60"], "--set is for article only, not for ordinary"),
    ],
)
def test_generate_refuses_what_it_cannot_do(words: list[str], message: str, tmp_path: Path) -> None:
    done = btb("generate", *words, "--out", tmp_path / "out")
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_the_bursts_that_were_made_are_the_bursts_that_are_found(windows: Path) -> None:
    done = btb("audit", windows, "--json", "-", "--depths", "4096", "--windows", "5,60")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert (found["traces"], found["requests"]) == (2, 2 * (8 * 40 + 20))
    deep = {depth["depth_tokens"]: depth for depth in found["depths"]}[4_096]
    by_window = {window["window_s"]: window for window in deep["windows"]}
    assert by_window[5.0]["largest"] == by_window[60.0]["largest"] == 40
    assert by_window[60.0]["events_20"] == by_window[60.0]["prefixes_20"] == 16
    # The first burst of a window comes within 10 s of its first decoy, or soon after.
    assert 14 <= deep["onsets"]["cold"] <= 16
    assert deep["onsets"]["tokens"] == deep["onsets"]["cold"] * 39 * 4_096
    assert found["pays"] is True


def test_the_tables_and_the_json_have_the_same_figures(windows: Path, tmp_path: Path) -> None:
    done = btb("audit", windows, "--json", tmp_path / "audit.json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads((tmp_path / "audit.json").read_text())
    assert found["verdict"] in " ".join(done.stdout.split())
    assert f"{found['requests']:,} requests in 2 windows" in done.stdout
    for share in found["reuse"]["share_of_input_tokens"].values():
        assert f"{share:.1%}" in done.stdout
    for depth in found["depths"]:
        assert f"{depth['depth_tokens']:,}" in done.stdout
        for window in depth["windows"]:
            assert f" {window['largest']:,}" in done.stdout


@pytest.mark.parametrize("words", [["--depths", "a"], ["--windows", "1;2"], ["--depths", "1.5"]])
def test_audit_refuses_what_are_no_numbers(words: list[str], windows: Path) -> None:
    done = btb("audit", windows, *words)
    assert isinstance(done.exception, ConfigError)
    assert "with commas between" in str(done.exception)


def test_audit_of_no_file_says_which(tmp_path: Path) -> None:
    done = btb("audit", tmp_path / "none.jsonl")
    assert isinstance(done.exception, TraceError)
    assert "none.jsonl" in str(done.exception)


def test_rows_that_were_left_out_or_sorted_in_are_named(tmp_path: Path) -> None:
    rows = [
        {"timestamp": at_ms, "input_length": 512, "output_length": 1, "hash_ids": [1]}
        for at_ms in (0, 2_000, 1_000, *range(3_000, 300_000, 1_000))
    ]
    rows.append({**rows[0], "timestamp": 300_000, "input_length": "many"})
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    done = btb("audit", path)
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "rows: 1 bad rows left out; " in said
    assert "rows.jsonl:301: input_length" in said
    assert "rows: 1 rows were out of order in time and sorted in" in said
