"""Each format on the real file that is kept beside the checkout; figures are the audit's."""

from itertools import islice
from pathlib import Path

import pytest

from btb.traces import ReaderOptions, Trace, open_trace, open_windows

DATA = Path(__file__).parents[1].parent / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real traces are not here")


def totals(trace: Trace) -> tuple[int, int]:
    """Return requests and input tokens, and hold the trace to what every trace keeps."""
    rows = tokens = 0
    last_s = 0.0
    for arrival in trace:
        assert arrival.at_s >= last_s
        assert arrival.block_tokens == trace.block_tokens
        assert len(arrival.chain) <= -(-arrival.input_tokens // trace.block_tokens)
        last_s = arrival.at_s
        rows += 1
        tokens += arrival.input_tokens
    assert trace.report.rows == rows
    return rows, tokens


def reuse(trace: Trace) -> tuple[float, int]:
    """Return the share of input tokens that an earlier request had, in %, and distinct blocks."""
    seen: set[int] = set()
    tokens = hit = 0
    for arrival in trace:
        depth = next((k for k, one in enumerate(arrival.chain) if one not in seen), None)
        found = len(arrival.chain) if depth is None else depth
        hit += min(found * arrival.block_tokens, arrival.input_tokens)
        tokens += arrival.input_tokens
        seen.update(arrival.chain)
    return round(100.0 * hit / tokens, 1), len(seen)


@pytest.mark.parametrize(
    ("name", "fmt", "block_tokens", "rows", "tokens"),
    [
        ("mooncake_conversation_trace.jsonl.zst", "mooncake", 512, 12_031, 144_793_823),
        ("mooncake_synthetic_trace.jsonl.zst", "mooncake", 512, 3_993, 61_194_628),
        ("mooncake_arxiv_first1000.jsonl.zst", "mooncake", 512, 1_000, 9_792_030),
        ("ragpulse_0_trace.jsonl.zst", "ragpulse", 64, 7_106, 20_917_099),
        ("dynamo_pi_request_trace.jsonl.gz", "dynamo", 16, 17, 66_520),
        ("AzureLLMInferenceTrace_code.csv.zst", "azure", 512, 8_819, 18_059_974),
        ("AzureLLMInferenceTrace_conv.csv.zst", "azure", 512, 19_366, 22_361_870),
        ("head8k_bailian.jsonl.zst", "bailian", 16, 7, 20_582),
        ("head8k_toolagent.jsonl.zst", "mooncake", 512, 45, 495_244),
    ],
)
def test_rows_and_tokens_are_the_files_own(
    name: str, fmt: str, block_tokens: int, rows: int, tokens: int
) -> None:
    trace = open_trace(DATA / name)
    assert (trace.fmt, trace.block_tokens) == (fmt, block_tokens)
    assert totals(trace) == (rows, tokens)


def test_mooncake_ids_are_kept_and_its_clock_is_seen_to_tick() -> None:
    trace = open_trace(DATA / "mooncake_conversation_trace.jsonl.zst")
    first, second = islice(trace, 2)
    assert first.chain == tuple(range(14))
    assert second.chain == (0, *range(14, 28))
    assert (second.at_s, second.input_tokens, second.output_tokens) == (0.0, 7322, 490)
    list(trace)
    assert trace.report.notes == ["clock ticks every 3.0 s"]


@pytest.mark.parametrize(
    ("name", "share", "blocks"),
    [
        ("mooncake_conversation_trace.jsonl.zst", 37.4, 182_790),
        ("mooncake_arxiv_first1000.jsonl.zst", 39.1, 12_207),
        ("mooncake_synthetic_trace.jsonl.zst", 65.1, 43_924),
        ("dynamo_pi_request_trace.jsonl.gz", 71.7, 1_183),
    ],
)
def test_reuse_is_what_the_audit_found(name: str, share: float, blocks: int) -> None:
    assert reuse(open_trace(DATA / name)) == (share, blocks)


def test_ragpulse_is_sorted_over_its_whole_week_and_reuses_what_the_audit_found() -> None:
    trace = open_trace(DATA / "ragpulse_0_trace.jsonl.zst")
    assert reuse(trace)[0] == 31.4
    assert (trace.report.reordered, trace.report.late) == (3_304, 0)


def test_dynamo_requests_come_by_the_time_of_receipt() -> None:
    trace = open_trace(DATA / "dynamo_pi_request_trace.jsonl.gz")
    arrivals = list(trace)
    assert arrivals[0].request_id == "71491777-4c0d-4d7f-a8a5-54f11a28dde2"
    assert arrivals[1].at_s == pytest.approx(31.191)  # ...080,006 ms after ...048,815 ms
    assert trace.report.reordered == 3


def test_lmcache_falls_apart_into_its_four_agents_with_the_audits_figures() -> None:
    windows = open_windows([DATA / "lmcache_agent_traces.tar.zst"])
    found = {window.name.split("/")[1]: (*totals(window), *reuse(window)) for window in windows}
    assert found == {
        "magagent": (746, 1_475_063, 82.7, 3_654),
        "miniswe": (402, 2_418_416, 93.2, 2_366),
        "taubench": (471, 77_839, 68.9, 142),
        "trace_RepoAgent": (186, 679_215, 3.2, 10_180),
    }


@pytest.mark.parametrize(
    ("name", "kept", "copies", "is_global"),
    [("kvct_v7_global_sessions", 445, 9, True), ("kvct_v8_local_sessions", 692, 18, False)],
)
def test_agent_sessions_are_laid_on_one_clock_without_copies(
    name: str, kept: int, copies: int, is_global: bool
) -> None:
    trace = open_trace(DATA / f"{name}.compact.jsonl.zst")
    arrivals = list(islice(trace, 2_000))
    notes = trace.report.notes
    assert [arrival.at_s for arrival in arrivals] == sorted(one.at_s for one in arrivals)
    assert any(note.startswith(f"{kept} sessions with no common clock") for note in notes)
    assert f"{copies} sessions left out: exact copies of another" in notes
    assert any("for load" in note for note in notes) == is_global
    assert all(len(one.chain) == one.input_tokens // 64 for one in arrivals)
    starts = {one.session for one in arrivals}
    assert len(starts) > 100


def test_agent_sessions_are_all_there_when_copies_are_kept() -> None:
    trace = open_trace(
        DATA / "kvct_v8_local_sessions.compact.jsonl.zst", options=ReaderOptions(drop_copies=False)
    )
    next(iter(trace))
    assert trace.report.notes[0].startswith("710 sessions with no common clock")


def test_a_whole_folder_of_mixed_traces_opens_and_says_what_it_leaves_out() -> None:
    windows = open_windows([DATA])
    assert len(windows) == 16
    assert "9 files of data fit no format" in windows[0].report.notes[-1]
