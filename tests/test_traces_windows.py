"""Windows out of files and folders."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from btb.errors import ConfigError, TraceError
from btb.traces import open_trace, open_windows


def mooncake(at_ms: int, tokens: int = 512, blocks: int = 2) -> str:
    fields = {"timestamp": at_ms, "input_length": tokens, "output_length": 1}
    return json.dumps({**fields, "hash_ids": list(range(blocks))}) + "\n"


def generated(folder: Path, texts: list[str], block_tokens: int = 256) -> Path:
    folder.mkdir()
    entries = []
    for number, content in enumerate(texts):
        name = f"window-{number:03d}.jsonl"
        (folder / name).write_text(content)
        sha256 = hashlib.sha256(content.encode()).hexdigest()
        entries.append({"file": name, "requests": content.count("\n"), "sha256": sha256})
    manifest = {"format": "btb-windows-1", "block_tokens": block_tokens, "windows": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_manifest_gives_its_windows_in_order_with_its_block_size(tmp_path: Path) -> None:
    folder = generated(tmp_path / "made", [mooncake(0), mooncake(0) + mooncake(9)], 300)
    windows = open_windows([folder])
    assert [window.name for window in windows] == ["made/window-000", "made/window-001"]
    assert [window.block_tokens for window in windows] == [300, 300]
    assert [len(list(window)) for window in windows] == [1, 2]
    assert next(iter(windows[0])).block_tokens == 300


def test_a_window_that_was_changed_is_refused(tmp_path: Path) -> None:
    folder = generated(tmp_path / "made", [mooncake(0)])
    (folder / "window-000.jsonl").write_text(mooncake(1))
    with pytest.raises(TraceError, match="sha256"):
        open_windows([folder])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"format": "btb-windows-9"}, "format"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"windows": []}, "windows"),
        ({"windows": [{"file": "../secret.jsonl"}]}, "file"),
        ({"windows": [{"file": "none.jsonl"}]}, "file"),
    ],
)
def test_a_bad_manifest_names_the_field(
    tmp_path: Path, change: dict[str, object], field: str
) -> None:
    (tmp_path / "secret.jsonl").write_text(mooncake(0))
    folder = generated(tmp_path / "made", [mooncake(0)])
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(TraceError, match=f"manifest.json: {field}"):
        open_windows([folder])


def test_a_folder_without_manifest_gives_a_window_for_each_trace(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(mooncake(0))
    (tmp_path / "a.jsonl").write_text(mooncake(0))
    (tmp_path / "notes.json").write_text('{"no": "trace"}')
    (tmp_path / "README.md").write_text("none")
    windows = open_windows([tmp_path])
    assert [window.name for window in windows] == [f"{tmp_path.name}/a", f"{tmp_path.name}/b"]
    assert windows[0].report.notes == [f"1 files of {tmp_path.name} fit no format: notes.json"]
    assert windows[1].report.notes == []


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace file"):
        open_windows([tmp_path])


def test_a_folder_of_several_windows_is_no_single_trace(tmp_path: Path) -> None:
    folder = generated(tmp_path / "made", [mooncake(0), mooncake(1)])
    with pytest.raises(TraceError, match="holds 2 windows"):
        open_trace(folder)


def test_an_unknown_format_is_refused_before_any_file_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        open_windows([tmp_path], fmt="azur")


def test_art_files_fall_apart_by_trace_id(tmp_path: Path) -> None:
    def art(trace_id: str, at_s: float, blocks: list[str]) -> str:
        fields = {"trace_id": trace_id, "arrival_s": at_s, "timestamp": at_s, "messages": ""}
        lengths = {"input_length": 256 * len(blocks), "output_length": 3}
        return json.dumps({**fields, **lengths, "hash_ids": blocks}) + "\n"

    path = tmp_path / "test.jsonl"
    path.write_text(art("w1", 5.0, ["a", "b"]) + art("w2", 1.0, ["a"]) + art("w1", 7.5, ["a", "c"]))
    first, second = open_windows([path])
    assert (first.name, second.name) == ("test/w1", "test/w2")
    assert [arrival.at_s for arrival in first] == [0.0, 2.5]
    one, two = first
    assert one.chain[0] == two.chain[0]
    assert one.chain[1] != two.chain[1]
    assert len(list(second)) == 1
    assert first.digest != second.digest
    assert len(list(open_trace(path))) == 3


def lmcache(at_us: int, session: str) -> str:
    fields = {"timestamp": at_us, "input": "x" * 600, "output": "yes", "session_id": session}
    return json.dumps(fields) + "\n"


def test_sessions_of_one_folder_are_one_trace_on_the_real_clock(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "a.jsonl").write_text(lmcache(1_760_000_003_000_000, "a"))
    (folder / "b.jsonl").write_text(lmcache(1_760_000_001_500_000, "b"))
    trace = open_trace(folder)
    assert [(arrival.at_s, arrival.session) for arrival in trace] == [(0.0, "b"), (1.5, "a")]
    assert trace.name == "agents"


def test_an_archive_falls_apart_by_its_top_folders(tmp_path: Path) -> None:
    for name in ("one/a.jsonl", "one/b.jsonl", "two/c.jsonl", "LICENSE"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lmcache(1_760_000_000_000_000, name))
    with tarfile.open(tmp_path / "agents.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "in", arcname=".")
    windows = open_windows([tmp_path / "agents.tar.gz"])
    assert [(window.name, len(list(window))) for window in windows] == [
        ("agents/one", 2),
        ("agents/two", 1),
    ]
