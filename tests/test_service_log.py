"""The log: whole rows only, whatever stopped the writer, and nothing acknowledged is lost."""

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btb.errors import ConfigError
from btb.service.log import lock_folder
from btb.service.records import arrival_line, read_arrival
from btb.service.recovery import newest_rows, recover
from btb.service.segments import Segments, segment_path
from btb.traces import open_trace
from forecasting.arrival import Arrival

ORIGIN_UNIX_S = 1.7e9


def segments(folder: Path, *, number: int = 1, segment_bytes: int = 10**6) -> Segments:
    return Segments(folder, number=number, segment_bytes=segment_bytes, origin_unix_s=ORIGIN_UNIX_S)


def line(number: int) -> bytes:
    return json.dumps({"v": 1, "kind": "note", "number": number}).encode() + b"\n"


def numbers(folder: Path) -> list[int]:
    rows = [row for row, _ in newest_rows(recover(folder).files, 10**9)]
    assert None not in rows
    return [row["number"] for row in rows if row is not None and row["kind"] == "note"]


def write_log(folder: Path, count: int, **options: int) -> None:
    out = segments(folder, **options)
    for number in range(count):
        out.append(line(number))
    out.close()


def test_what_was_appended_is_found_again(tmp_path: Path) -> None:
    write_log(tmp_path, 3)
    found = recover(tmp_path)
    assert found.origin_unix_s == ORIGIN_UNIX_S
    assert (found.cut_bytes, found.next_number) == (0, 2)
    assert numbers(tmp_path) == [0, 1, 2]


def test_an_empty_folder_is_a_new_log(tmp_path: Path) -> None:
    found = recover(tmp_path)
    assert (found.files, found.origin_unix_s, found.next_number) == ((), None, 1)


def test_a_new_file_is_begun_by_size(tmp_path: Path) -> None:
    write_log(tmp_path, 10, segment_bytes=150)
    found = recover(tmp_path)
    assert len(found.files) > 2
    assert all(path.stat().st_size < 150 + len(line(9)) for path in found.files)
    assert numbers(tmp_path) == list(range(10))


@settings(max_examples=60)  # each row is synced to the disk
@given(rows=st.integers(1, 5), at=st.floats(0.0, 1.0), size=st.sampled_from([130, 10**6]))
def test_a_log_cut_at_any_byte_gives_back_exactly_its_whole_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: int, at: float, size: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    write_log(folder, rows, segment_bytes=size)
    last = sorted(folder.glob("log-*.jsonl"))[-1]
    text = last.read_bytes()
    cut = int(at * len(text))
    os.truncate(last, cut)
    whole = text[:cut].rfind(b"\n") + 1
    missing = text[whole:].count(b'"note"')
    found = recover(folder)
    assert found.cut_bytes == cut - whole
    assert numbers(folder) == list(range(rows - missing))
    assert recover(folder).cut_bytes == 0


@settings(max_examples=40)
@given(tail=st.binary(max_size=60).filter(lambda tail: b"{" not in tail))
def test_rubbish_behind_the_last_row_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    folder = tmp_path_factory.mktemp("log")
    write_log(folder, 2)
    with segment_path(folder, 1).open("ab") as file:
        file.write(tail)
    assert recover(folder).cut_bytes == len(tail)
    assert numbers(folder) == [0, 1]


def test_a_file_without_one_whole_row_is_removed_and_its_number_used_again(tmp_path: Path) -> None:
    write_log(tmp_path, 2)
    segment_path(tmp_path, 2).write_bytes(b'{"v": 1, "ki')
    found = recover(tmp_path)
    assert (found.cut_bytes, found.next_number) == (12, 2)
    assert not segment_path(tmp_path, 2).exists()


def test_damage_in_the_middle_is_told_and_left_alone(tmp_path: Path) -> None:
    write_log(tmp_path, 2)
    path = segment_path(tmp_path, 1)
    path.write_bytes(path.read_bytes().replace(b'"number": 0', b"\x00" * 11))
    found = recover(tmp_path)
    rows = [row for row, _ in newest_rows(found.files, 10**9)]
    assert rows[1] is None
    assert rows[2] is not None
    assert found.cut_bytes == 0


def test_only_the_newest_part_is_read_in_whole_rows(tmp_path: Path) -> None:
    write_log(tmp_path, 10)
    files = recover(tmp_path).files
    size = len(line(0))
    for newest_bytes, expected in ((2 * size, [8, 9]), (2 * size + 3, [8, 9]), (size - 1, [])):
        rows = [row for row, _ in newest_rows(files, newest_bytes)]
        assert [row and row["number"] for row in rows] == expected


def test_the_newest_part_may_span_files(tmp_path: Path) -> None:
    write_log(tmp_path, 10, segment_bytes=150)
    files = recover(tmp_path).files
    newest_bytes = sum(path.stat().st_size for path in files[-2:])
    rows = [row for row, _ in newest_rows(files, newest_bytes)]
    assert [row and row["kind"] for row in rows].count("segment") == 2
    assert rows[-1] is not None
    assert rows[-1]["number"] == 9


def test_two_services_cannot_share_a_log(tmp_path: Path) -> None:
    handle = lock_folder(tmp_path / "log")
    with pytest.raises(ConfigError, match="in use by another btb serve"):
        lock_folder(tmp_path / "log")
    os.close(handle)
    os.close(lock_folder(tmp_path / "log"))


def test_a_log_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"log folder .*: Not a directory"):
        lock_folder(tmp_path / "file" / "log")


def test_tenants_stay_apart_in_the_log_and_readers_of_traces_understand_it(tmp_path: Path) -> None:
    out = segments(tmp_path)
    for tenant in ("acme", "initech", ""):
        out.append(arrival_line(Arrival(1.0, (2**64 - 1, 7), 16, 30, tenant=tenant)))
    out.append(line(1))
    out.close()
    trace = open_trace(segment_path(tmp_path, 1))
    chains = [arrival.chain for arrival in trace]
    assert trace.fmt == "btb"
    assert trace.report.bad == 0
    assert len({block for chain in chains for block in chain}) == 6
    assert chains[2] == (2**64 - 1, 7)


chains = st.lists(st.integers(0, 2**64 - 1), max_size=5).map(tuple)


@given(
    chain=chains,
    tenant=st.text(max_size=8),
    at_s=st.floats(0.0, 1e9),
    session=st.text(max_size=8),
)
def test_an_arrival_comes_back_from_its_row_as_it_was(
    chain: tuple[int, ...], tenant: str, at_s: float, session: str
) -> None:
    arrival = Arrival(at_s, chain, 16, 16 * len(chain), tenant=tenant, session=session)
    text = arrival_line(arrival)
    assert text.count(b"\n") == 1
    assert read_arrival(json.loads(text)) == arrival


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow past `size_bytes`: what a full disk looks like."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_half_a_row_on_a_full_disk_is_taken_back(tmp_path: Path) -> None:
    out = segments(tmp_path)
    out.append(line(0))
    size = segment_path(tmp_path, 1).stat().st_size
    with largest_file(size + 10), pytest.raises(OSError, match="File too large"):
        out.append(line(1))
    assert segment_path(tmp_path, 1).stat().st_size == size
    out.append(line(2))
    out.close()
    assert numbers(tmp_path) == [0, 2]


def test_a_file_that_cannot_even_be_begun_leaves_none_behind(tmp_path: Path) -> None:
    out = segments(tmp_path)
    with largest_file(10), pytest.raises(OSError, match="File too large"):
        out.append(line(0))
    assert list(tmp_path.iterdir()) == []
    out.append(line(1))
    out.close()
    assert numbers(tmp_path) == [1]
