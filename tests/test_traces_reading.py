"""How rows are read, whatever the format: bad ones, late ones, packed ones, cut-off ones."""

import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard

from btb.errors import ConfigError, TraceError
from btb.traces import ReaderOptions, open_trace


def row(at_ms: float, blocks: Sequence[int] = (0, 1), tokens: int = 600) -> str:
    fields = {"timestamp": at_ms, "input_length": tokens, "output_length": 5}
    return json.dumps({**fields, "hash_ids": list(blocks)}) + "\n"


def written(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_a_trace_can_be_gone_through_twice(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "a.jsonl", [row(0), row(1500, (0, 2))]))
    first = list(trace)
    assert [arrival.at_s for arrival in first] == [0.0, 1.5]
    assert [arrival.chain for arrival in first] == [(0, 1), (0, 2)]
    assert list(trace) == first


def test_time_begins_at_the_first_arrival(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "a.jsonl", [row(90_000), row(92_000)]))
    assert [arrival.at_s for arrival in trace] == [0.0, 2.0]


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [row(0)])
    assert open_trace(path).digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_report_tells_how_far_a_pass_got(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "a.jsonl", [row(at) for at in range(10)]))
    arrivals = iter(trace)
    next(arrivals)
    next(arrivals)
    assert trace.report.rows == 2


def test_bad_rows_are_counted_and_the_first_five_shown(tmp_path: Path) -> None:
    lines = [row(at) for at in range(100)]
    for bad in range(10, 17):
        lines[bad] = row(bad).replace('"input_length": 600', '"input_length": -1')
    trace = open_trace(written(tmp_path / "a.jsonl", lines), options=ReaderOptions(0.1))
    assert len(list(trace)) == 93
    assert trace.report.bad == 7
    assert len(trace.report.first_bad) == 5
    assert trace.report.first_bad[0] == (
        "a.jsonl:11: input_length: expected a whole number, 0 or more, got -1"
    )


@pytest.mark.parametrize(
    ("spoilt", "field"),
    [
        ('{"timestamp": 1, "input_length": 600, "output_length": 5}', "hash_ids"),
        (row(1).replace("600", "600.5"), "input_length"),
        (row(1).replace("[0, 1]", '[0, "x"]'), "hash_ids"),
        (row(1).replace("[0, 1]", "[0, 1e3]"), "hash_ids"),
        (row(1).replace("[0, 1]", f"[0, {2**64}]"), "hash_ids"),
        (row(1).replace("[0, 1]", "[0, 1, 2]"), "hash_ids"),
        (row(1).replace('"timestamp": 1', '"timestamp": NaN'), "timestamp"),
        (row(1).replace('"timestamp": 1', '"timestamp": 1e999'), "timestamp"),
        (row(1).replace('"timestamp": 1', '"timestamp": true'), "timestamp"),
        (row(1).replace('"timestamp": 1', '"timestamp": "1"'), "timestamp"),
        (row(1).replace('"output_length": 5', '"output_length": []'), "output_length"),
        ("[1, 2]\n", "one JSON object"),
        ("{" * 5000 + "\n", "one JSON object"),
        ('{"a": \xff}\n', "one JSON object"),
    ],
)
def test_a_bad_row_names_its_line_and_field(tmp_path: Path, spoilt: str, field: str) -> None:
    path = tmp_path / "a.jsonl"
    text = row(0) + spoilt.rstrip("\n") + "\n" + row(2)
    path.write_bytes(text.encode("latin-1"))
    trace = open_trace(path, fmt="mooncake", options=ReaderOptions(0.5, block_tokens=512))
    assert len(list(trace)) == 2
    (shown,) = trace.report.first_bad
    assert shown.startswith("a.jsonl:2: ")
    assert field in shown


def test_reading_stops_where_too_many_rows_are_bad(tmp_path: Path) -> None:
    lines = [row(at) for at in range(97)] + ["{}\n"] * 3
    trace = open_trace(written(tmp_path / "a.jsonl", lines))
    with pytest.raises(TraceError, match=r"3 of 100 rows are bad(.|\n)*a\.jsonl:98: hash_ids"):
        list(trace)
    allowed = open_trace(tmp_path / "a.jsonl", options=ReaderOptions(max_bad_share=0.03))
    assert len(list(allowed)) == 97


def test_a_long_trace_stops_early(tmp_path: Path) -> None:
    lines = [row(at) if at < 985 else "{}\n" for at in range(5000)]
    trace = open_trace(
        written(tmp_path / "a.jsonl", lines), options=ReaderOptions(sort_window_s=0.0)
    )
    with pytest.raises(TraceError, match="15 of 1,000 rows"):
        list(trace)


def test_a_torn_last_line_is_told_and_not_fatal(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "a.jsonl", [row(0), row(1), row(2)[:-20]]))
    assert len(list(trace)) == 2
    assert trace.report.bad == 1
    assert "a.jsonl:3: expected one whole JSON object" in trace.report.first_bad[0]


def test_a_torn_line_in_the_middle_counts_as_bad(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "a.jsonl", [row(0), row(1)[:-20] + "\n", row(2)]))
    with pytest.raises(TraceError, match="1 of 3 rows"):
        list(trace)


def test_a_last_line_without_line_end_is_good(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "a.jsonl", [row(0), row(1).rstrip("\n")]))
    assert len(list(trace)) == 2
    assert trace.report.bad == 0


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    trace = open_trace(written(tmp_path / "a.jsonl", [row(0), "\n", "  \n", row(1)]))
    assert len(list(trace)) == 2
    assert trace.report.bad == 0


def test_rows_out_of_order_are_sorted_and_counted(tmp_path: Path) -> None:
    lines = [row(at) for at in (0, 3000, 1000, 4000, 2000)]
    trace = open_trace(written(tmp_path / "a.jsonl", lines))
    assert [arrival.at_s for arrival in trace] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert (trace.report.reordered, trace.report.late) == (2, 0)


def test_rows_at_the_same_time_keep_their_order(tmp_path: Path) -> None:
    lines = [row(5, (0, number)) for number in (9, 3, 7)]
    trace = open_trace(written(tmp_path / "a.jsonl", lines))
    assert [arrival.chain[1] for arrival in trace] == [9, 3, 7]


def test_a_row_beyond_the_sort_window_is_left_out_and_counted(tmp_path: Path) -> None:
    lines = [row(at) for at in (0, 3000, 9000, 1000, 9500)]
    options = ReaderOptions(max_bad_share=0.2, sort_window_s=5.0)
    trace = open_trace(written(tmp_path / "a.jsonl", lines), options=options)
    assert [arrival.at_s for arrival in trace] == [0.0, 3.0, 9.0, 9.5]
    assert trace.report.late == 1


def test_too_many_late_rows_stop_the_reading(tmp_path: Path) -> None:
    lines = [row(at) for at in (0, 3000, 9000, 1000, 9500)]
    trace = open_trace(
        written(tmp_path / "a.jsonl", lines), options=ReaderOptions(sort_window_s=5.0)
    )
    with pytest.raises(TraceError, match=r"1 of 5 rows come too late.*sort_window_s"):
        list(trace)


@pytest.mark.parametrize("end", [".gz", ".zst"])
def test_a_packed_trace_reads_like_the_plain_one(tmp_path: Path, end: str) -> None:
    plain = written(tmp_path / "a.jsonl", [row(at, (0, at)) for at in range(1000)])
    pack = gzip.compress if end == ".gz" else zstandard.compress
    packed = tmp_path / f"a.jsonl{end}"
    packed.write_bytes(pack(plain.read_bytes()))
    assert list(open_trace(packed)) == list(open_trace(plain))


def test_zst_frames_behind_each_other_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"".join(zstandard.compress(row(at).encode()) for at in (0, 1, 2)))
    assert len(list(open_trace(path))) == 3


def test_gzip_data_that_end_too_early_are_told_and_not_fatal(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    whole = gzip.compress("".join(row(at * 7919 % 10_007, (0, at)) for at in range(5000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    trace = open_trace(path)
    assert 1000 < len(list(trace)) < 5000
    assert trace.report.bad == 1
    assert "cut off" in trace.report.first_bad[0]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet", "a.tar.zst"])
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"this is none of them, by far\n" * 20)
    with pytest.raises(TraceError, match=name):
        list(open_trace(path))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        open_trace(tmp_path / "a.jsonl")


def test_an_unknown_format_name_gets_the_nearest_one(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [row(0)])
    with pytest.raises(ConfigError, match="did you mean 'mooncake'"):
        open_trace(path, fmt="moncake")


def test_a_file_of_no_known_format_is_refused_with_what_it_has(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", ['{"when": 1, "what": 2}\n'])
    with pytest.raises(TraceError, match="the fields when, what"):
        open_trace(path)


@pytest.mark.parametrize("text", ["", "\n\n", "no JSON at all\n"])
def test_a_file_without_rows_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match="no readable row"):
        open_trace(written(tmp_path / "a.jsonl", [text]))


def test_a_trace_without_requests_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", ['{"v": 1, "kind": "outcome"}\n'])
    with pytest.raises(TraceError, match="no request in it"):
        list(open_trace(path))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_bad_share", 1.1),
        ("max_bad_share", float("nan")),
        ("sort_window_s", -1.0),
        ("block_tokens", 0),
        ("start_spread_s", float("inf")),
    ],
)
def test_options_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        ReaderOptions(**{field: value})  # type: ignore[arg-type]


def test_a_clock_that_ticks_is_noted(tmp_path: Path) -> None:
    ticking = [row(3000 * (at // 4) + at // 4 % 2) for at in range(200)]
    trace = open_trace(written(tmp_path / "a.jsonl", ticking))
    list(trace)
    assert trace.report.tick_s == pytest.approx(3.0, abs=0.001)
    assert trace.report.notes == ["clock ticks every 3.0 s"]


def test_a_clock_that_flows_is_not_noted(tmp_path: Path) -> None:
    flowing = [row(at * at % 997 + 1000 * at) for at in range(200)]
    trace = open_trace(written(tmp_path / "a.jsonl", flowing))
    list(trace)
    assert trace.report.tick_s is None
    assert trace.report.notes == []
