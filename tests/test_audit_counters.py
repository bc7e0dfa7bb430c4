"""The audit's counters: small traces by hand, and slow but plain counting on any trace."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from btb.errors import ConfigError
from btb.traces.audit import Audit, Auditor, Thresholds
from btb.traces.audit.fan_out import FanOut
from btb.traces.audit.onsets import OnsetCounter, common
from btb.traces.audit.pairs import PairCounter
from btb.traces.audit.reuse import ReuseCounter
from forecasting.arrival import Arrival

BLOCK = 512


def arrival(at_s: float, *chain: int, session: str = "") -> Arrival:
    return Arrival(at_s, chain, BLOCK, input_tokens=BLOCK * len(chain), session=session)


def audited(arrivals: Iterable[Arrival], *windows_s: float, tick_s: float | None = None) -> Audit:
    auditor = Auditor(BLOCK, depths_tokens=(512, 1_024, 2_048), windows_s=windows_s or (10.0,))
    auditor.add_trace(arrivals)
    return auditor.result("made", tick_s=tick_s)


@st.composite
def traces(draw: st.DrawFn) -> list[Arrival]:
    """Return arrivals whose chains are paths in a small tree, so equal ids are equal prefixes."""
    gaps_s = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 4.0, 10.0, 31.0, 70.0]), max_size=60))
    arrivals = []
    for at_s in accumulate(gaps_s):
        path = draw(st.lists(st.integers(0, 1), min_size=1, max_size=5))
        chain = tuple(accumulate(path, lambda node, way: node * 2 + way, initial=1))[1:]
        short = draw(st.integers(0, BLOCK - 1))
        arrivals.append(replace(arrival(at_s, *chain), input_tokens=BLOCK * len(chain) - short))
    return arrivals


def test_three_arrivals_by_hand() -> None:
    found = audited([arrival(0.0, 1, 2), arrival(6.0, 1, 3), arrival(10.0, 1, 2, 4)], 5.0, 10.0)
    shallow, deep, _ = found.depths
    assert (shallow.depth_tokens, shallow.requests) == (512, 3)
    assert [window.largest for window in shallow.windows] == [2, 3]
    assert (deep.depth_tokens, deep.requests) == (1_024, 3)
    assert [window.largest for window in deep.windows] == [1, 2]
    assert found.peaks == {5.0: 2, 10.0: 3}
    # Second: 1 of 2 blocks known, 6 s old. Third: blocks 1 (4 s) and 2 (10 s, the end included).
    assert found.reuse is not None
    assert found.reuse.tokens == {inf: 1_536, 300.0: 1_536, 60.0: 1_536, 10.0: 1_536}
    assert (found.reuse.requests, found.reuse.blocks) == (2, 4)
    assert (found.span_s, found.arrivals_per_s) == (10.0, 0.3)


def test_a_prompt_shorter_than_the_depth_does_not_count_at_it() -> None:
    partial = replace(arrival(0.0, 1, 2), input_tokens=1_023)
    found = audited([partial, arrival(1.0, 1, 3)])
    assert [depth.requests for depth in found.depths] == [2, 1, 0]


def test_a_depth_is_rounded_up_to_whole_blocks() -> None:
    auditor = Auditor(BLOCK, depths_tokens=(513, 2_000))
    depths = auditor.result("made").depths
    assert [(one.asked_tokens, one.depth_tokens) for one in depths] == [
        (513, 1_024),
        (2_000, 2_048),
    ]


def test_overlapping_windows_are_one_event_and_others_are_not() -> None:
    seen = FanOut(window_s=10.0)
    for k in range(30):
        seen.add(7, k * 1.0)
    for k in range(8):
        seen.add(7, 100.0 + k)
        seen.add(8, 100.0 + k)
    seen.end_trace()
    assert seen.largest == 11
    assert (seen.events[8], seen.prefixes[8]) == (3, 2)
    assert (seen.events[20], seen.prefixes[20]) == (0, 0)


def test_nothing_is_carried_from_one_trace_to_the_next() -> None:
    auditor = Auditor(BLOCK, depths_tokens=(512,), windows_s=(10.0,))
    for _ in range(2):
        auditor.add_trace([arrival(0.0, 1), arrival(1.0, 1)])
    found = auditor.result("made")
    assert (found.traces, found.requests, found.span_s) == (2, 4, 2.0)
    assert found.depths[0].windows[0].largest == 2
    assert found.reuse is not None
    assert found.reuse.tokens[inf] == 2 * 512


def test_windows_below_a_tick_are_left_out_and_one_tick_stands_for_them() -> None:
    ticking = [arrival(at_s, 1) for at_s in (0.0, 0.0, 3.0, 3.0, 3.0)]
    found = audited(ticking, 1.0, 10.0, tick_s=3.0)
    assert found.peaks == {0.0: 3, 10.0: 5}
    assert audited(ticking, 3.0, 10.0, tick_s=3.0).peaks == {3.0: 5, 10.0: 5}
    assert audited(ticking, 1.0).peaks == {1.0: 3}


@pytest.mark.parametrize("wrong", [{"depths_tokens": (0,)}, {"windows_s": (-1.0,)}])
def test_depths_and_windows_must_be_positive(wrong: dict[str, tuple[float]]) -> None:
    with pytest.raises(ConfigError, match="must be positive"):
        Auditor(BLOCK, **wrong)  # type: ignore[arg-type]


@given(trace=traces())
def test_the_most_never_falls_with_a_longer_window_nor_rises_with_depth(
    trace: list[Arrival],
) -> None:
    found = audited(trace, 0.5, 5.0, 10.0, 60.0)
    by_depth = [[window.largest for window in depth.windows] for depth in found.depths]
    for row in by_depth:
        assert row == sorted(row)
    for column in zip(*by_depth, strict=True):
        assert list(column) == sorted(column, reverse=True)
    for depth in by_depth:
        assert all(most <= peak for most, peak in zip(depth, found.peaks.values(), strict=True))


@given(trace=traces(), window_s=st.sampled_from([0.0, 1.0, 10.0, 60.0]))
def test_fan_out_is_what_plain_counting_gives(trace: list[Arrival], window_s: float) -> None:
    seen, times_s = FanOut(window_s), defaultdict(list)
    for one in trace:
        seen.add(one.chain[0], one.at_s)
        times_s[one.chain[0]].append(one.at_s)
    counts = [
        sum(start_s <= at_s <= start_s + window_s for at_s in all_s)
        for all_s in times_s.values()
        for start_s in all_s
    ]
    assert seen.largest == max(counts, default=0)


@given(trace=traces())
def test_reuse_is_what_a_walk_down_each_chain_gives(trace: list[Arrival]) -> None:
    counter, used_s = ReuseCounter(), dict[int, float]()
    expected = dict.fromkeys(counter.found.tokens, 0)
    for one in trace:
        counter.add(one)
        for age_s in expected:
            known = 0
            for block in one.chain:
                if block not in used_s or used_s[block] < one.at_s - age_s:
                    break
                known += 1
            expected[age_s] += min(known * BLOCK, one.input_tokens)
        used_s |= dict.fromkeys(one.chain, one.at_s)
    assert counter.found.tokens == expected
    assert counter.found.blocks == len(used_s)


@given(trace=traces())
def test_pairs_are_what_plain_counting_gives(trace: list[Arrival]) -> None:
    counter, times_s = PairCounter(), defaultdict[int, list[float]](list)
    for one in trace:
        counter.add(one.chain[0], one.at_s)
        times_s[one.chain[0]].append(one.at_s)
    end_s = trace[-1].at_s if trace else 0.0
    counter.end_trace(end_s)
    found = [pair for all_s in times_s.values() for pair in plain_pairs(all_s, end_s)]
    assert counter.found.triggers == len(found)
    assert counter.found.positive == sum(right for right, _ in found)
    assert counter.found.cold == sum(cold for _, cold in found)
    assert counter.found.cold_positive == sum(right and cold for right, cold in found)


def plain_pairs(times_s: list[float], end_s: float) -> list[tuple[bool, bool]]:
    """Return whether each trigger was right and whether it was cold."""
    found, silent_s = [], -inf
    for k in range(1, len(times_s)):
        first_s, second_s = times_s[k - 1], times_s[k]
        if first_s <= silent_s or second_s - first_s > 10.0:
            continue
        silent_s = second_s + 30.0
        more = sum(second_s < at_s <= silent_s for at_s in times_s[k + 1 :])
        more += sum(at_s == second_s for at_s in times_s[k + 1 :])
        cold = not any(first_s - 60.0 <= at_s for at_s in times_s[: k - 1])
        if silent_s <= end_s:
            found.append((more >= 4, cold))
    return found


def test_a_forgetful_reuse_counter_says_so_and_never_overstates() -> None:
    whole, small = ReuseCounter(), ReuseCounter(max_blocks=10)
    for k in range(100):
        one = arrival(float(k), k % 40, 1_000 + k % 40)
        whole.add(one)
        small.add(one)
    assert small.found.forgotten
    assert not whole.found.forgotten
    assert small.found.tokens[inf] < whole.found.tokens[inf] == 60 * 1_024


def test_prefixes_that_went_quiet_are_forgotten() -> None:
    seen = FanOut(window_s=10.0)
    for k in range(50_000):
        seen.add(k, float(k))
    assert seen.live < 10_000
    seen.add(49_999, 50_000.0)
    assert seen.largest == 2


def onsets(arrivals: Iterable[Arrival], limits: Thresholds) -> OnsetCounter:
    counter = OnsetCounter(limits)
    for one in arrivals:
        counter.add(one.chain[0], one)
    counter.end_trace(BLOCK)
    return counter


def burst(start_s: float, count: int, sessions: int = 0) -> list[Arrival]:
    return [
        arrival(start_s + k, 1, 2, 100 + k, session=f"s{k % sessions}" if sessions else "")
        for k in range(count)
    ]


def test_a_burst_from_silence_is_cold_and_its_common_prefix_is_found() -> None:
    found = onsets(burst(100.0, 20) + burst(200.0, 19) + burst(300.0, 21), Thresholds()).found
    assert (found.cold, found.running, found.serial) == (2, 0, 0)
    # They share two blocks, and the first of each burst computes them.
    assert found.tokens == (19 + 20) * 2 * BLOCK


def test_a_prefix_that_is_busy_from_the_start_is_not_cold() -> None:
    found = onsets(burst(3.0, 50), Thresholds()).found
    assert (found.cold, found.running, found.tokens) == (0, 1, 0)


def test_steps_of_a_few_sessions_are_not_a_burst_but_many_sessions_are() -> None:
    assert onsets(burst(50.0, 30, sessions=3), Thresholds()).found.serial == 1
    assert onsets(burst(50.0, 30, sessions=4), Thresholds()).found.cold == 1


@given(one=st.lists(st.booleans(), max_size=8), other=st.lists(st.booleans(), max_size=8))
def test_two_chains_share_what_a_walk_finds(one: list[bool], other: list[bool]) -> None:
    def chain(path: list[bool]) -> list[int]:
        return list(accumulate(path, lambda node, way: node * 2 + way, initial=1))[1:]

    walked = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        walked += 1
    assert common(chain(one), chain(other)) == walked


def test_the_verdict_is_yes_only_where_cold_bursts_are_a_share_of_the_input() -> None:
    def verdict(lone: int) -> Audit:
        deep = [
            Arrival(100.0 + k / 10, (1, 2, 3, 4, 9 + k), BLOCK, input_tokens=5 * BLOCK)
            for k in range(30)
        ]
        others = [
            Arrival(float(k), tuple(range(j, j + 40)), BLOCK, input_tokens=40 * BLOCK)
            for k, j in enumerate(range(10_000, 10_000 + 40 * lone, 40))
        ]
        return audited(sorted(deep + others, key=lambda one: one.at_s))

    yes, no = verdict(10), verdict(400)
    assert (yes.pays, no.pays) == (True, False)
    assert f"{29 * 2_048:,} tokens of prefill" in yes.verdict
    assert "hardly pay here: once" in no.verdict
