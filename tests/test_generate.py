"""The article's windows, the folder that is written, and the words on the command line."""

import json
from pathlib import Path
from random import Random

import pytest

from btb.errors import ConfigError
from btb.traces import open_windows
from btb.traces.generate import (
    article_windows,
    claim_folder,
    make_windows,
    read_article,
    row,
    write_windows,
)
from btb.traces.parameters import make_parameters, pairs
from btb.traces.workloads import FAMILIES
from btb.traces.workloads.base import Context, Draft
from forecasting.arrival import Arrival

ARTICLE = Path(__file__).parents[1].parent / "shared" / "reference" / "windows.json"
needs_article = pytest.mark.skipif(not ARTICLE.is_file(), reason=f"no {ARTICLE.name} here")
SMALL = {
    "fanout": {"bursts": "2", "size": "5", "decoys": "3", "prefix_tokens": "1024"},
    "ramp": {"rise_s": "60", "hold_s": "10", "duration_s": "100"},
    "recurring": {"duration_s": "1200"},
    "agents": {"duration_s": "300"},
    "ordinary": {"duration_s": "60"},
    "mixed": {"duration_s": "1800"},
}


def write_small(family: str, out: Path, *, seed: int = 1, compress: bool = False) -> None:
    parameters = make_parameters(family, SMALL[family])
    windows = make_windows(family, parameters, seed=seed, windows=2)
    write_windows(out, windows, {"family": family, "seed": seed}, compress=compress)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@needs_article
@pytest.mark.parametrize(("name", "span_s"), [("b60", 60.0), ("b1", 1.0)])
def test_the_article_is_rebuilt_request_by_request(name: str, span_s: float) -> None:
    given, _ = read_article(ARTICLE, name)
    windows = list(article_windows(given))
    assert len(windows) == 15
    assert sum(len(window.arrivals) for window in windows) == 61_800
    starts_s = json.loads(ARTICLE.read_text())["sets"][name]["windows"]
    for window, start in zip(windows, starts_s, strict=True):
        expected_s = start["decoy_s"] + [
            burst_s + span_s * i / 499 for burst_s in start["burst_start_s"] for i in range(500)
        ]
        assert [arrival.at_s for arrival in window.arrivals] == sorted(expected_s)


@needs_article
def test_requests_of_the_article_share_256_blocks_and_own_one() -> None:
    given, _ = read_article(ARTICLE, "b60")
    window = next(article_windows(given))
    by_prefix: dict[tuple[int, ...], int] = {}
    for arrival in window.arrivals:
        assert (arrival.input_tokens, arrival.output_tokens) == (65_792, 1)
        assert len(arrival.chain) == 257
        by_prefix[arrival.chain[:256]] = by_prefix.get(arrival.chain[:256], 0) + 1
    assert sorted(by_prefix.values()) == [1] * 120 + [500] * 8
    assert len({arrival.chain[-1] for arrival in window.arrivals}) == 4_120
    truth = {burst.prefix_key: burst.size for burst in window.bursts}
    assert truth == {chain[-1]: size for chain, size in by_prefix.items() if size == 500}


@needs_article
def test_the_article_reads_back_to_the_last_digit_but_one(tmp_path: Path) -> None:
    given, shape = read_article(ARTICLE, "b1")
    window = next(article_windows(given))
    write_windows(tmp_path, [window], {"family": "article", "seed": None, "parameters": shape})
    (trace,) = open_windows([tmp_path])
    first_s = window.arrivals[0].at_s
    for read, made in zip(trace, window.arrivals, strict=True):
        assert read.at_s == pytest.approx(made.at_s - first_s, rel=0.0, abs=1e-12)
        assert read.chain == made.chain
    assert trace.block_tokens == 256


def test_an_article_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "windows.json"
    with pytest.raises(ConfigError, match=r"can't read .*windows.json"):
        read_article(path, "b60")
    path.write_text('{"sets": {"b60": {}}, "block_tokens": 256}')
    with pytest.raises(ConfigError, match="no windows file of the article"):
        read_article(path, "b60")
    with pytest.raises(ConfigError, match="has no set 'b2'; it has b60"):
        read_article(path, "b2")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(
    family: str, tmp_path: Path
) -> None:
    write_small(family, tmp_path / "one")
    write_small(family, tmp_path / "same")
    write_small(family, tmp_path / "other", seed=2)
    assert files(tmp_path / "one") == files(tmp_path / "same")
    assert files(tmp_path / "one") != files(tmp_path / "other")


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_written_is_what_is_read(family: str, tmp_path: Path) -> None:
    write_small(family, tmp_path, compress=True)
    parameters = make_parameters(family, SMALL[family])
    made = list(make_windows(family, parameters, seed=1, windows=2))
    read = open_windows([tmp_path])
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    for trace, window, entry in zip(read, made, manifest["windows"], strict=True):
        arrivals = list(trace)
        assert [one.chain for one in arrivals] == [one.chain for one in window.arrivals]
        assert [one.session for one in arrivals] == [one.session for one in window.arrivals]
        assert entry["requests"] == len(arrivals) == trace.report.rows
        assert entry["duration_s"] == pytest.approx(arrivals[-1].at_s)
        assert len(entry["bursts"]) == len(window.bursts)
        assert trace.report.bad == trace.report.reordered == 0


def test_more_windows_begin_with_the_same_ones() -> None:
    parameters = make_parameters("ordinary", SMALL["ordinary"])
    one = list(make_windows("ordinary", parameters, seed=3, windows=1))
    two = list(make_windows("ordinary", parameters, seed=3, windows=2))
    assert one == two[:1]
    assert two[0] != two[1]


def test_a_row_keeps_its_time_and_names_what_is_known() -> None:
    arrival = Arrival(0.0015, (0, 4), 256, input_tokens=300, tenant="a", session="s")
    assert json.loads(row(arrival)) == {
        "timestamp": 1.5,
        "input_length": 300,
        "output_length": 1,
        "hash_ids": [0, 4],
        "session_id": "s",
        "tenant": "a",
    }


def test_a_folder_with_files_is_only_overwritten_by_force(tmp_path: Path) -> None:
    write_small("ordinary", tmp_path, compress=True)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        claim_folder(tmp_path, force=False)
    claim_folder(tmp_path, force=True)
    assert list(files(tmp_path)) == ["notes.txt"]
    with pytest.raises(ConfigError, match="is a file"):
        claim_folder(tmp_path / "notes.txt", force=True)


def test_a_context_keeps_whole_blocks_only() -> None:
    draft = Draft(Random(0))
    system = draft.prompt(512)
    asked = draft.extend(system, 100)
    answered = draft.extend(asked, 156)
    assert (system.chain, asked.chain, answered.chain) == ((0, 1), (0, 1, 2), (0, 1, 3))
    assert draft.extend(answered, 1).chain == (0, 1, 3, 4)
    assert answered == Context(768, (0, 1, 3))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sise=3"], "no parameter 'sise'; did you mean 'size'"),
        (["size=x"], "size must be a whole number, got 'x'"),
        (["even=perhaps"], "even must be true or false, got 'perhaps'"),
        (["size=0"], "size must be positive, got 0"),
        (["span_s=nan"], "span_s must not be negative, got nan"),
        (["prefix_tokens=255"], "prefix_tokens must be at least 256"),
        (["size"], "'size' is no parameter; expected NAME=VALUE"),
        (["size=1", "size=2"], "'size' is given twice"),
    ],
)
def test_a_wrong_parameter_is_refused_with_a_hint(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_parameters("fanout", pairs(words))


def test_an_unknown_family_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'fanout'"):
        make_parameters("fannout", {})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_defaults_and_they_are_valid(family: str) -> None:
    assert make_parameters(family, {}) == FAMILIES[family].parameters()
