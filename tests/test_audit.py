"""The audit's figures on real traces, against those published in the data's own audit."""

from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path

import pytest

from btb.traces import open_windows
from btb.traces.audit import Audit, audit

DATA = Path(__file__).parents[1].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="no shared/data folder beside this one")

Counts = tuple[int, int, int, int, int]
"""Largest, events of 8, their prefixes, events of 20, their prefixes."""


@dataclass(frozen=True)
class Expected:
    """Figures of sections 3 to 6 of AUDIT.md. Windows are one tick or 1 s, 10 s and 60 s."""

    file: str
    requests: int
    input_tokens: int
    depths: dict[int, tuple[int, Counts, Counts, Counts]]
    reuse: tuple[int, int, str, str, str, str]
    pairs: dict[int, tuple[int, int, int, int, int, int]]
    peaks: tuple[int, int, int]
    rate: str


NONE: tuple[int, int, int, int] = (0, 0, 0, 0)
CONVERSATION = Expected(
    "mooncake_conversation_trace.jsonl.zst",
    12_031,
    144_793_823,
    {
        512: (12_031, (28, 923, 1, 9, 1), (73, 1, 1, 1, 1), (263, 1, 1, 1, 1)),
        2_048: (9_227, (1, *NONE), (2, *NONE), (5, *NONE)),
        8_192: (5_412, (1, *NONE), (2, *NONE), (4, *NONE)),
        16_384: (2_732, (1, *NONE), (2, *NONE), (4, *NONE)),
        32_768: (829, (1, *NONE), (1, *NONE), (2, *NONE)),
    },
    (12_030, 182_790, "37.4%", "29.3%", "10.5%", "4.4%"),
    {512: (108, 108, 1, 1, 1, 1), 2_048: (17, 0, 14, 0, 16, 0), 8_192: (6, 0, 5, 0, 5, 0)},
    (28, 73, 263),
    "3.401",
)
ARXIV = Expected(
    "mooncake_arxiv_first1000.jsonl.zst",
    1_000,
    9_792_030,
    {
        512: (1_000, (16, 51, 2, 0, 0), (48, 5, 3, 4, 2), (181, 3, 3, 3, 3)),
        2_048: (903, (12, 12, 1, 0, 0), (38, 4, 2, 3, 1), (141, 2, 2, 2, 2)),
        8_192: (273, (1, *NONE), (2, *NONE), (2, *NONE)),
        16_384: (135, (1, *NONE), (2, *NONE), (2, *NONE)),
        32_768: (41, (1, *NONE), (1, *NONE), (2, *NONE)),
    },
    (997, 12_207, "39.1%", "39.1%", "32.5%", "29.3%"),
    {512: (15, 15, 3, 3, 3, 3), 2_048: (10, 10, 2, 2, 2, 2)},
    (26, 99, 371),
    "5.647",
)
SYNTHETIC = Expected(
    "mooncake_synthetic_trace.jsonl.zst",
    3_993,
    61_194_628,
    {
        512: (2_886, (3, *NONE), (4, *NONE), (9, 4, 4, 0, 0)),
        2_048: (2_692, (3, *NONE), (4, *NONE), (9, 4, 4, 0, 0)),
        8_192: (2_118, (3, *NONE), (4, *NONE), (9, 1, 1, 0, 0)),
        16_384: (1_587, (3, *NONE), (4, *NONE), (9, 1, 1, 0, 0)),
        32_768: (645, (3, *NONE), (4, *NONE), (9, 1, 1, 0, 0)),
    },
    (1_782, 43_924, "65.1%", "59.5%", "32.8%", "10.9%"),
    {
        512: (177, 1, 100, 0, 134, 1),
        2_048: (175, 1, 98, 0, 132, 1),
        8_192: (121, 1, 70, 0, 95, 1),
    },
    (14, 57, 280),
    "3.907",
)


@cache
def audit_file(name: str) -> Audit:
    return audit(name, open_windows([DATA / name]))


@needs_data
@pytest.mark.parametrize("expected", [CONVERSATION, ARXIV, SYNTHETIC], ids=lambda one: one.file)
def test_a_mooncake_trace_gives_the_published_figures(expected: Expected) -> None:
    found = audit_file(expected.file)
    assert (found.requests, found.input_tokens) == (expected.requests, expected.input_tokens)
    assert f"{found.arrivals_per_s:.3f}" == expected.rate
    assert tuple(found.peaks.values()) == expected.peaks
    counted = {
        depth.depth_tokens: (
            depth.requests,
            *(
                (one.largest, one.events_8, one.prefixes_8, one.events_20, one.prefixes_20)
                for one in depth.windows
            ),
        )
        for depth in found.depths
    }
    assert counted == expected.depths
    assert found.reuse is not None
    shares = [f"{tokens / found.input_tokens:.1%}" for tokens in found.reuse.tokens.values()]
    assert (found.reuse.requests, found.reuse.blocks, *shares) == expected.reuse
    pairs = {depth.depth_tokens: depth.pairs for depth in found.depths}
    for tokens, six in expected.pairs.items():
        one = pairs[tokens]
        assert (one.triggers, one.positive, one.cold, one.cold_positive) == six[:4]
        assert (one.prefixes, one.positive_prefixes) == six[4:]


@needs_data
@pytest.mark.parametrize(("expected", "tick_s"), [(CONVERSATION, 3.0), (ARXIV, 3.053)])
def test_a_clock_that_ticks_is_seen_and_no_shorter_window_is_claimed(
    expected: Expected, tick_s: float
) -> None:
    found = audit_file(expected.file)
    assert found.tick_s == pytest.approx(tick_s, abs=0.001)
    assert list(found.peaks) == [0.0, 10.0, 60.0]
    assert "1" not in found.as_json()["peaks"]


@needs_data
def test_a_clock_without_steps_keeps_its_short_windows() -> None:
    found = audit_file(SYNTHETIC.file)
    assert found.tick_s is None
    assert list(found.peaks) == [1.0, 10.0, 60.0]


@needs_data
@pytest.mark.parametrize(
    ("file", "why"),
    [
        (CONVERSATION.file, "no prefix of 2,048 tokens or more"),
        (SYNTHETIC.file, "no prefix of 2,048 tokens or more"),
        (ARXIV.file, "were busy from the start"),
    ],
)
def test_no_mooncake_trace_is_one_where_btb_would_pay(file: str, why: str) -> None:
    found = audit_file(file)
    assert found.pays is False
    assert why in found.verdict


@needs_data
@pytest.mark.parametrize(
    ("file", "peaks", "rate"),
    [
        ("AzureLLMInferenceTrace_conv.csv.zst", [19, 112, 522], "5.530"),
        ("AzureLLMInferenceTrace_code.csv.zst", [72, 415, 723], "2.567"),
    ],
)
def test_a_trace_without_prefixes_gives_rates_only_and_says_so(
    file: str, peaks: list[int], rate: str
) -> None:
    found = audit_file(file)
    assert list(found.peaks.values()) == peaks
    assert f"{found.arrivals_per_s:.3f}" == rate
    assert (found.depths, found.reuse, found.pays) == ((), None, None)
    assert "does not tell which requests share a prefix" in found.verdict


@needs_data
def test_ragpulse_gives_the_published_figures() -> None:
    found = audit_file("ragpulse_0_trace.jsonl.zst")
    depth = {one.depth_tokens: one for one in found.depths}
    assert (depth[512].requests, depth[2_048].requests) == (7_106, 5_675)
    assert [one.largest for one in depth[512].windows] == [3, 4, 10]
    assert [one.largest for one in depth[2_048].windows] == [2, 2, 2]
    assert depth[512].pairs.triggers == 666
    assert found.reuse is not None
    assert f"{found.reuse.tokens[inf] / found.input_tokens:.1%}" == "31.4%"
