"""The service's own log as what `btb train --since` learns from."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from btb.cli import app
from btb.errors import ConfigError
from btb.service.log_since import log_since, parse_since
from btb.service.records import arrival_line
from btb.service.segments import Segments, segment_path
from btb.traces import open_windows
from forecasting.arrival import Arrival
from models.checkpoint import load

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ORIGIN_S = NOON.timestamp()


def write_log(folder: Path, segments: Sequence[Sequence[float]]) -> None:
    """Write a log whose time began at noon: a segment for each list of arrival times."""
    folder.mkdir(exist_ok=True)
    for number, times_s in enumerate(segments, start=1):
        one = Segments(folder, number=number, segment_bytes=10**9, origin_unix_s=ORIGIN_S)
        lines = [arrival_line(Arrival(at_s, (1, 2, 3, 4), 512, 2048)) for at_s in times_s]
        one.append(b"".join(lines))
        one.close()


def times_since(folder: Path, seconds: float) -> list[float]:
    """Return the times of what is left, from the first on, as a trace has it."""
    with log_since([folder], NOON + timedelta(seconds=seconds)) as paths:
        (window,) = open_windows(paths)
        return [arrival.at_s for arrival in window]


def test_only_what_came_then_or_later_is_left(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [[0.0, 100.0, 200.0], [300.0, 400.0], [500.0]])
    assert times_since(tmp_path / "log", 200.0) == [0.0, 100.0, 200.0, 300.0]
    assert times_since(tmp_path / "log", 200.1) == [0.0, 100.0, 200.0]
    assert times_since(tmp_path / "log", 500.0) == [0.0]
    with pytest.raises(ConfigError, match="no arrival since 2026-03-01T12:08:21Z"):
        times_since(tmp_path / "log", 501.0)


def test_an_arrival_that_was_late_is_not_left_behind_in_an_older_segment(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [[0.0, 303.0], [299.0, 400.0]])
    assert times_since(tmp_path / "log", 300.0) == [0.0, 97.0]


def test_segments_that_are_too_old_are_not_read(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [[0.0, 100.0], [300.0], [500.0]])
    segment_path(tmp_path / "log", 1).unlink()
    segment_path(tmp_path / "log", 1).mkdir()  # reading it would fail
    assert times_since(tmp_path / "log", 350.0) == [0.0]


def test_damage_is_counted_and_a_row_that_is_being_written_is_not(tmp_path: Path) -> None:
    write_log(tmp_path / "log", [[0.0, 100.0, 200.0]])
    with segment_path(tmp_path / "log", 1).open("ab") as file:
        file.write(b"damaged\n" + arrival_line(Arrival(250.0, (1,), 512, 512)) + b'{"v": 1, "ki')
    with log_since([tmp_path / "log"], NOON + timedelta(seconds=50.0)) as paths:
        (window,) = open_windows(paths)
        digest = window.digest
        with segment_path(tmp_path / "log", 1).open("ab") as file:  # the log goes on
            file.write(b'nd": "outcome"}\n' + arrival_line(Arrival(260.0, (1,), 512, 512)))
        assert window.digest == digest
        assert paths[0].name == "log-since-2026-03-01T12:00:50Z.jsonl"
        text = paths[0].read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["at_s"] for line in text if line != "damaged"] == [100.0, 200.0, 250.0]
    assert text.count("damaged") == 1
    assert not paths[0].exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOON - timedelta(hours=2)),
        ("1.5d", NOON - timedelta(days=1.5)),
        ("45s", NOON - timedelta(seconds=45)),
        ("2026-02-28T09:30:00+01:00", datetime(2026, 2, 28, 8, 30, tzinfo=UTC)),
        ("2026-02-28", datetime(2026, 2, 28).astimezone(UTC)),  # local time
    ],
)
def test_a_time_or_a_duration(text: str, expected: datetime) -> None:
    assert parse_since(text, NOON) == expected


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2w", "yesterday", "2026-13-01", "999999d"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--since: expected a duration like 2h"):
        parse_since(text, datetime(1, 1, 2, tzinfo=UTC))


def test_what_is_no_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "log-00000001.jsonl").write_text('{"v": 1}\n', encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for folder, reason in (
        (tmp_path, "does not begin as a log of btb serve does"),
        (tmp_path / "empty", "empty is no log folder of btb serve"),
        (tmp_path / "none", "none is no log folder of btb serve"),
    ):
        with pytest.raises(ConfigError, match=reason), log_since([folder], NOON):
            pass


def test_the_command_learns_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    write_log(tmp_path / "log", [[float(second) for second in range(200)]])
    out = tmp_path / "model.json"
    # Noon was 1000 s ago, the newest 100 arrivals came within the last 900.
    path = segment_path(tmp_path / "log", 1)
    old = f'"origin_unix_s": {ORIGIN_S}'
    now = datetime.now(UTC).timestamp()
    path.write_text(path.read_text().replace(old, f'"origin_unix_s": {now - 1000.0}'))
    words = ["train", str(tmp_path / "log"), "--since", "900s", "--no-mlflow", "--model", "ewma"]
    done = CliRunner().invoke(app, [*words, "--out", str(out), "--json", "-"])
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert 80 <= content["arrivals"] <= 100  # less what the command took to get there
    (digest,) = load(out).traces.values()
    assert digest == content["traces"][0]["digest"]
    assert list((tmp_path / "temporary").iterdir()) == []
