"""What each workload family promises of its windows."""

import dataclasses
from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btb.traces.workloads import FAMILIES
from btb.traces.workloads.agents import Agents
from btb.traces.workloads.base import Draft, Window
from btb.traces.workloads.chance import poisson, spread, thinned, turns
from btb.traces.workloads.fanout import Fanout
from btb.traces.workloads.mixed import Mixed
from btb.traces.workloads.ordinary import Ordinary
from btb.traces.workloads.ramp import Ramp
from btb.traces.workloads.recurring import Recurring


def make(family: str, parameters: Any, seed: int = 1) -> Window:
    draft = Draft(Random(seed))
    FAMILIES[family].add(parameters, draft)
    return draft.window()


@settings(max_examples=30, deadline=None)
@given(family=st.sampled_from(list(FAMILIES)), seed=st.integers(0, 10_000))
def test_chains_fit_prompts_and_an_equal_id_is_an_equal_prefix(family: str, seed: int) -> None:
    parameters = FAMILIES[family].parameters(duration_s=400.0)
    if family == "fanout":
        parameters = dataclasses.replace(parameters, size=20, prefix_tokens=1_024)
    window = make(family, parameters, seed)
    before: dict[int, int | None] = {}
    for arrival in window.arrivals:
        assert len(arrival.chain) == -(-arrival.input_tokens // 256)
        for parent, block in pairwise((None, *arrival.chain)):
            assert block is not None
            assert before.setdefault(block, parent) == parent
    times_s = [arrival.at_s for arrival in window.arrivals]
    assert times_s == sorted(times_s)
    assert all(at_s >= 0.0 for at_s in times_s)


@settings(max_examples=20, deadline=None)
@given(family=st.sampled_from(list(FAMILIES)), seed=st.integers(0, 10_000))
def test_every_burst_named_is_in_the_window(family: str, seed: int) -> None:
    parameters = FAMILIES[family].parameters(duration_s=1_000.0)
    if family == "fanout":
        parameters = dataclasses.replace(parameters, size=20, prefix_tokens=1_024)
    window = make(family, parameters, seed)
    for burst in window.bursts:
        depth = burst.prefix_tokens // 256
        having_s = [
            arrival.at_s
            for arrival in window.arrivals
            if len(arrival.chain) >= depth and arrival.chain[depth - 1] == burst.prefix_key
        ]
        within = [at_s for at_s in having_s if burst.start_s <= at_s <= burst.end_s]
        assert len(within) >= burst.size
        assert (burst.start_s, burst.end_s) == (within[0], within[-1])


def test_fanout_has_the_articles_counts_and_times() -> None:
    window = make("fanout", Fanout())
    assert len(window.arrivals) == 8 * 500 + 120
    for slot, burst in enumerate(window.bursts):
        assert burst.size == 500
        assert burst.prefix_tokens == 65_536
        assert 18.0 + 40.0 * slot <= burst.start_s <= 23.0 + 40.0 * slot
        assert 50.0 < burst.end_s - burst.start_s < 60.0
    assert {arrival.input_tokens for arrival in window.arrivals} == {65_792}


def test_decoys_come_as_often_and_as_far_apart_as_asked() -> None:
    shape = Fanout(bursts=0, decoys=7, decoy_repeats=3, decoy_gap_s=0.25, prefix_tokens=512)
    window = make("fanout", shape)
    times_s: dict[tuple[int, ...], list[float]] = {}
    for arrival in window.arrivals:
        times_s.setdefault(arrival.chain[:2], []).append(arrival.at_s)
    assert len(times_s) == 7
    for first_s, *others_s in times_s.values():
        assert others_s == pytest.approx([first_s + 0.25, first_s + 0.5])
    assert window.bursts == ()


def test_an_even_burst_is_evenly_spaced_and_a_poisson_one_is_not() -> None:
    def gaps_s(even: bool) -> list[float]:
        shape = Fanout(bursts=1, size=101, span_s=10.0, decoys=0, even=even)
        times_s = [arrival.at_s for arrival in make("fanout", shape).arrivals]
        return [after - before for before, after in pairwise(times_s)]

    assert gaps_s(True) == pytest.approx([0.1] * 100)
    # Exponential gaps: the largest of 100 is about ln(100) + 0.58 = 5 times the mean.
    assert max(gaps_s(False)) > 0.25


def test_a_ramp_rises_as_a_straight_line() -> None:
    window = make("ramp", Ramp(peak_rps=20.0, background_chats_per_s=0.0))
    (burst,) = window.bursts
    assert burst.size == len(window.arrivals)
    times_s = [arrival.at_s for arrival in window.arrivals]
    # 20 a second at the end of 600 s: 6,000 in all, a quarter of them in the first half.
    risen = bisect_left(times_s, 660.0)
    assert risen == pytest.approx(6_000, abs=5 * 6_000**0.5)
    assert bisect_left(times_s, 360.0) == pytest.approx(1_500, abs=5 * 1_500**0.5)
    assert len(times_s) - risen == pytest.approx(180 * 20, abs=5 * 3_600**0.5)


def test_a_job_comes_back_on_its_timetable_with_jitter_and_misses() -> None:
    shape = Recurring(
        duration_s=40_000.0,
        jobs=1,
        shortest_s=400.0,
        longest_s=400.0,
        background_chats_per_s=0.0,
        span_s=1.0,
    )
    bursts = make("recurring", shape).bursts
    assert len({burst.prefix_key for burst in bursts}) == 1
    # Due 100 times, a tenth missed: 90 give or take 3 standard deviations.
    assert len(bursts) == pytest.approx(90, abs=9)
    phases_s = [burst.start_s % 400.0 for burst in bursts]
    due_s = (min(phases_s) + max(phases_s)) / 2.0
    if max(phases_s) - min(phases_s) > 200.0:
        due_s = 0.0
    off_s = [(burst.start_s - due_s + 200.0) % 400.0 - 200.0 for burst in bursts]
    assert max(off_s) - min(off_s) <= 2 * 40.0 + 2.0
    assert max(off_s) - min(off_s) > 40.0


def test_a_stopped_job_never_returns() -> None:
    shape = Recurring(duration_s=20_000.0, jobs=20, stopping=1.0, background_chats_per_s=0.0)
    last_s = {burst.kind: burst.start_s for burst in make("recurring", shape).bursts}
    assert min(last_s.values()) < 10_000.0
    running = dataclasses.replace(shape, stopping=0.0, misses=0.0)
    kept_s = {burst.kind: burst.start_s for burst in make("recurring", running).bursts}
    assert min(kept_s.values()) > 20_000.0 - 1.1 * 1_800.0 - 200.0


def test_a_parents_template_tells_whether_children_follow() -> None:
    window = make("agents", Agents(duration_s=20_000.0, template_tokens=512))
    fanned = {burst.prefix_key for burst in window.bursts}
    parents: Counter[int] = Counter()
    fanning: Counter[int] = Counter()
    sessions = set()
    for arrival in window.arrivals:
        if "/" not in arrival.session and arrival.session not in sessions:
            sessions.add(arrival.session)
            template, whole = arrival.chain[1], arrival.input_tokens // 256
            parents[template] += 1
            fanning[template] += arrival.chain[whole - 1] in fanned
    shares = sorted(fanning[template] / parents[template] for template in parents)
    # 2,000 parents over 6 templates: 0.05 and 0.8, give or take 4 standard deviations.
    assert shares[:3] == pytest.approx([0.05] * 3, abs=0.05)
    assert shares[3:] == pytest.approx([0.8] * 3, abs=0.09)


def test_children_come_after_their_parent_and_share_its_whole_blocks() -> None:
    window = make("agents", Agents(fanning=1.0, stray=1.0))
    parents = {one.session: one for one in window.arrivals if "/" not in one.session}
    children = [one for one in window.arrivals if "/" in one.session]
    assert len(children) > len(parents)
    for child in children:
        parent = parents[child.session.split("/")[0]]
        whole = parent.input_tokens // 256
        assert child.chain[:whole] == parent.chain[:whole]
        assert child.at_s > parent.at_s


def test_a_conversation_keeps_all_that_was_said() -> None:
    window = make("ordinary", Ordinary(chats_per_s=0.2, turns=6.0, max_tokens=4_096))
    by_chat: dict[str, list[Any]] = {}
    for arrival in window.arrivals:
        by_chat.setdefault(arrival.session, []).append(arrival)
    assert max(map(len, by_chat.values())) > 3
    for turns_made in by_chat.values():
        for earlier, later in pairwise(turns_made):
            assert later.input_tokens > earlier.input_tokens + earlier.output_tokens
            whole = earlier.input_tokens // 256
            assert later.chain[:whole] == earlier.chain[:whole]
    assert max(arrival.input_tokens for arrival in window.arrivals) <= 4_096
    assert max(arrival.at_s for arrival in window.arrivals) < 600.0
    assert len({arrival.chain[3] for arrival in window.arrivals}) == 3


def test_mixed_has_every_kind_of_burst_and_never_runs_over() -> None:
    window = make("mixed", Mixed(duration_s=7_200.0))
    kinds = {burst.kind.split("/")[0] for burst in window.bursts}
    assert kinds == {"fanout", "ramp", "recurring", "agents"}
    assert window.arrivals[-1].at_s < 7_200.0
    assert all(burst.end_s < 7_200.0 for burst in window.bursts)


def test_a_mixed_hour_is_a_day_of_moderate_size() -> None:
    window = make("mixed", Mixed())
    assert 3_000 < len(window.arrivals) < 150_000 / 24 * 1.3
    assert sum(len(arrival.chain) for arrival in window.arrivals) < 100 * len(window.arrivals)


def test_a_poisson_process_has_its_rate_and_stays_inside() -> None:
    times_s = list(poisson(5.0, 100.0, 1_100.0, Random(1)))
    assert len(times_s) == pytest.approx(5_000, abs=4 * 5_000**0.5)
    assert 100.0 < times_s[0] < times_s[-1] < 1_100.0
    assert list(poisson(0.0, 0.0, 10.0, Random(1))) == []


def test_thinning_leaves_out_where_the_rate_is_zero() -> None:
    times_s = list(thinned(lambda at_s: float(at_s > 5.0), 1.0, 0.0, 1_000.0, Random(1)))
    assert min(times_s) > 5.0
    assert len(times_s) == pytest.approx(995, abs=4 * 995**0.5)


@given(count=st.integers(1, 50), span_s=st.floats(0.0, 1e4), seed=st.none() | st.integers(0, 99))
def test_spread_times_are_in_order_and_within(count: int, span_s: float, seed: int | None) -> None:
    times_s = spread(3.0, span_s, count, None if seed is None else Random(seed))
    assert len(times_s) == count
    assert times_s == sorted(times_s)
    assert 3.0 <= times_s[0] <= times_s[-1] <= 3.0 + span_s + 1e-9


def test_turns_have_their_mean() -> None:
    rng = Random(1)
    assert sum(turns(4.0, rng) for _ in range(10_000)) / 10_000 == pytest.approx(4.0, abs=0.15)
    assert {turns(1.0, rng) for _ in range(100)} == {1}
