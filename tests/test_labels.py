from collections.abc import Sequence
from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forecasting.arrival import Arrival
from forecasting.labels import LabelQueue
from forecasting.tracker import PrefixTracker, Sample

HORIZONS_S = (1.0, 2.5, 5.0)
BOUNDARY_BLOCKS = 2
Chain = tuple[int, ...]


def request(at_s: float, chain: Chain) -> Arrival:
    return Arrival(at_s, chain, block_tokens=512, input_tokens=512 * len(chain))


def follow(arrivals: Sequence[Arrival], max_blocks: int = 1000) -> dict[tuple[int, float], int]:
    """Run tracker and queue as a forecaster does; return counts by arrival's index and horizon."""
    tracker = PrefixTracker(boundary_tokens=512 * BOUNDARY_BLOCKS, max_blocks=max_blocks)
    queue = LabelQueue(HORIZONS_S)
    samples: list[Sample | None] = []
    counts = {}
    for arrival in [*arrivals, request(1e6, ())]:
        index = {id(sample): position for position, sample in enumerate(samples)}
        for label in queue.due(arrival.at_s):
            key = index[id(label.sample)], label.horizon_s
            assert key not in counts
            counts[key] = label.count
        sample = tracker.observe(arrival)
        samples.append(sample)
        if sample is not None:
            queue.add(sample)
    assert len(queue) == queue.dropped == 0
    return counts


def count_by_hand(arrivals: Sequence[Arrival]) -> dict[tuple[int, float], int]:
    counts = {}
    for index, arrival in enumerate(arrivals):
        shared = arrival.chain[:BOUNDARY_BLOCKS]
        if len(shared) < BOUNDARY_BLOCKS:
            continue
        for horizon_s in HORIZONS_S:
            counts[index, horizon_s] = sum(
                later.chain[:BOUNDARY_BLOCKS] == shared
                for later in arrivals[index + 1 :]
                if later.at_s <= arrival.at_s + horizon_s
            )
    return counts


def chain_of(letters: Sequence[int]) -> Chain:
    return tuple(hash(tuple(letters[: n + 1])) for n in range(len(letters)))


def test_arrivals_up_to_the_horizon_and_on_it_are_counted_and_no_later_one() -> None:
    arrivals = [request(at_s, (1, 2)) for at_s in (0.0, 0.5, 1.0, 1.25, 5.0, 5.5)]
    counts = follow(arrivals)
    assert [counts[0, horizon_s] for horizon_s in HORIZONS_S] == [2, 3, 4]
    assert [counts[4, horizon_s] for horizon_s in HORIZONS_S] == [1, 1, 1]


def test_of_arrivals_at_the_same_time_those_later_in_order_are_counted() -> None:
    counts = follow([request(3.0, (1, 2)) for _ in range(3)])
    assert [counts[index, 1.0] for index in range(3)] == [2, 1, 0]


@st.composite
def traffic(draw: st.DrawFn) -> list[Arrival]:
    gaps = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, 2.5, 7.0])
    letters = st.lists(st.integers(0, 1), max_size=4)
    steps = draw(st.lists(st.tuples(gaps, letters), max_size=30))
    at_s, arrivals = 0.0, []
    for gap_s, letter in steps:
        at_s += gap_s
        arrivals.append(request(at_s, chain_of(letter)))
    return arrivals


@given(arrivals=traffic())
@example(arrivals=[request(0.0, (1, 2)), request(0.5, (1, 3)), request(0.75, (1, 2))])
def test_labels_are_exactly_what_counting_by_hand_gives(arrivals: list[Arrival]) -> None:
    assert follow(arrivals) == count_by_hand(arrivals)


def test_a_label_waits_while_another_arrival_may_still_come_at_its_very_end() -> None:
    tracker, queue = PrefixTracker(boundary_tokens=1024), LabelQueue((5.0,))
    sample = tracker.observe(request(10.0, (1, 2)))
    assert sample is not None
    queue.add(sample)
    assert list(queue.due(15.0)) == []
    tracker.observe(request(15.0, (1, 2)))
    (label,) = queue.due(15.001)
    assert (label.sample, label.horizon_s, label.count) == (sample, 5.0, 1)


def test_a_pruned_prefix_still_gives_its_labels() -> None:
    arrivals = [request(0.0, (1, 2)), request(0.5, (1, 2)), request(0.75, (3, 4))]
    counts = follow(arrivals, max_blocks=2)
    assert counts == count_by_hand(arrivals)


def test_a_burst_is_kept_then_samples_are_thinned_evenly_counted_and_never_above_the_cap() -> None:
    tracker, queue = PrefixTracker(boundary_tokens=1024), LabelQueue((1.0, 1000.0), max_samples=64)
    learnt = 0
    for step in range(1000):
        at_s = float(step)
        learnt += sum(label.horizon_s == 1.0 for label in queue.due(at_s))
        sample = tracker.observe(request(at_s, (1, 2)))
        assert sample is not None
        queue.add(sample)
        assert len(queue) <= 64
    held_s = [label.sample.at_s for label in queue.due(1e9) if label.horizon_s == 1000.0]
    assert len(held_s) + queue.dropped == 1000
    # 16 at once, then 48 in 1,000 s: one in 20.8. After 16 there is 0.768 of the next, at 21 1.008.
    assert held_s[:17] == [*map(float, range(16)), 21.0]
    assert {late - early for early, late in pairwise(held_s[16:])} == {20.0, 21.0}
    assert len(held_s) == 63


def test_a_queue_of_one_sample_holds_the_next_one_when_that_is_over() -> None:
    tracker, queue = PrefixTracker(boundary_tokens=1024), LabelQueue((1.0,), max_samples=1)
    found = []
    for step in range(5):
        found += [label.sample.at_s for label in queue.due(float(step))]
        sample = tracker.observe(request(float(step), (1, 2)))
        assert sample is not None
        queue.add(sample)
    assert found == [0.0, 2.0]


def test_a_queue_without_horizons_holds_nothing() -> None:
    tracker, queue = PrefixTracker(boundary_tokens=1024), LabelQueue(())
    sample = tracker.observe(request(0.0, (1, 2)))
    assert sample is not None
    queue.add(sample)
    assert (len(queue), list(queue.due(1e9))) == (0, [])


@pytest.mark.parametrize("horizon_s", [0.0, -1.0, inf, nan])
def test_a_horizon_that_is_no_time_ahead_is_refused(horizon_s: float) -> None:
    with pytest.raises(ValueError, match="a horizon must be positive and finite"):
        LabelQueue((1.0, horizon_s))


def test_a_queue_that_can_hold_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="max_samples must be at least 1, got 0"):
        LabelQueue((1.0,), max_samples=0)
