"""The queue of what is due, and what the forecaster says before a burst's first request."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.arrival import Arrival
from forecasting.due import DueQueue
from forecasting.forecast import Forecast
from forecasting.forecaster import Forecaster
from forecasting.node import PrefixNode
from models.ewma import Ewma
from models.recurrence import MAX_MISSES, Schedule


def scheduled(due_s: float, period_s: float = 1e9) -> PrefixNode:
    node = PrefixNode((1,), None, block_tokens=512, tenant="")
    levers = (1.0,) * (MAX_MISSES + 1)
    node.stats.schedule = Schedule(0.0, due_s, period_s, 2.0, levers, 8.0, 0.1, 40.0, 10.0)
    return node


def queue_of(*nodes: PrefixNode, limit: int = 100) -> DueQueue:
    queue = DueQueue(limit)
    for node in nodes:
        assert node.stats.schedule is not None
        queue.add(node, node.stats.schedule)
    return queue


def test_what_may_begin_by_then_is_due_and_nothing_else() -> None:
    soon, later = scheduled(100.0), scheduled(200.0)  # from 95 and 195 s on
    queue = queue_of(soon, later)
    assert queue.due(0.0, 60.0) == []
    assert queue.due(40.0, 60.0) == [soon]
    assert set(queue.due(140.0, 60.0)) == {soon, later}


def test_what_has_not_come_is_let_go_of_until_it_is_due_again() -> None:
    node = scheduled(100.0, period_s=1000.0)
    queue = queue_of(node)
    for misses in range(MAX_MISSES + 1):
        queue.advance(1000.0 * misses + 100.0)
        assert queue.due(1000.0 * misses + 100.0, 1.0) == [node]
        queue.advance(1000.0 * misses + 106.0)
        assert queue.due(1000.0 * misses + 106.0, 1.0) == []
    queue.advance(1e6)
    assert len(queue) == 0


def test_a_new_schedule_takes_the_place_of_the_old_one() -> None:
    node = scheduled(100.0)
    queue = queue_of(node)
    node.stats.schedule = scheduled(500.0).stats.schedule
    assert node.stats.schedule is not None
    queue.add(node, node.stats.schedule)
    assert queue.due(100.0, 1.0) == []
    assert queue.due(500.0, 1.0) == [node]


def test_a_prefix_that_was_pruned_is_not_due() -> None:
    node = scheduled(100.0)
    queue = queue_of(node)
    node.alive = False
    assert queue.due(100.0, 1.0) == []


def test_a_full_queue_takes_no_more_but_makes_room_of_what_is_stale() -> None:
    nodes = [scheduled(100.0 + number) for number in range(10)]
    queue = queue_of(*nodes, limit=8)
    assert (len(queue), queue.dropped) == (8, 2)
    for node in nodes[:4]:
        node.alive = False
    extra = scheduled(50.0)
    assert extra.stats.schedule is not None
    queue.add(extra, extra.stats.schedule)
    assert (len(queue), queue.dropped) == (5, 2)
    assert queue.due(50.0, 1.0) == [extra]


def test_a_queue_needs_room() -> None:
    with pytest.raises(ValueError, match="limit"):
        DueQueue(0)


@given(
    times_s=st.lists(st.floats(0.0, 1000.0), max_size=60),
    now_s=st.floats(0.0, 1000.0),
    within_s=st.floats(0.0, 300.0),
)
def test_the_queue_finds_what_a_scan_would(
    times_s: list[float], now_s: float, within_s: float
) -> None:
    nodes = [scheduled(at_s) for at_s in times_s]
    queue = queue_of(*nodes)
    queue.advance(now_s)
    want = {n for n, at_s in zip(nodes, times_s, strict=True) if now_s - 5.0 <= at_s}
    want = {n for n in want if n.stats.schedule and n.stats.schedule.opens_s(1) <= now_s + within_s}
    assert set(queue.due(now_s, within_s)) == want


def run(starts_s: list[float], size: int = 10) -> Forecaster:
    """Feed bursts of `size` requests a second apart, with others around them."""
    forecaster = Forecaster({h: Ewma(h) for h in (5.0, 60.0)}, boundary_tokens=512)
    rng = Random(1)
    times_s = [(start_s + second, 7) for start_s in starts_s for second in range(size)]
    times_s += [(rng.uniform(0.0, starts_s[-1]), 100 + number) for number in range(200)]
    for number, (at_s, key) in enumerate(sorted(times_s)):
        forecaster.observe(Arrival(at_s, (key, 1000 + number), 512, 1024))
    return forecaster


def due(forecaster: Forecaster, at_s: float) -> list[Forecast]:
    return forecaster.due(at_s, within_s=60.0)


def test_a_burst_that_returns_is_due_before_its_first_request() -> None:
    forecaster = run([0.0, 600.0, 1200.0, 1800.0])
    assert due(forecaster, 2000.0) == []
    (told,) = due(forecaster, 2370.0)
    assert (told.prefix.key, told.seen) == (7, 40)
    assert told.returns[5.0] < told.returns[60.0]
    assert 0.2 < told.returns[60.0] < 0.9
    # Ten are expected if it comes, nearly all of them within the minute.
    assert 0.7 < told.mean(60.0) / (10 * told.returns[60.0]) < 1.1
    assert told.returns[60.0] < told.counts[60.0].at_least(1) < told.returns[60.0] + 0.1


def test_it_is_not_due_while_it_is_under_way() -> None:
    assert due(run([0.0, 600.0, 1200.0, 1800.0]), 1812.0) == []


def test_asking_ahead_changes_nothing() -> None:
    forecaster, silent = run([0.0, 600.0, 1200.0]), run([0.0, 600.0, 1200.0])
    due(forecaster, 9e9)
    due(forecaster, 1700.0)
    assert due(forecaster, 1770.0) == due(silent, 1770.0) != []


def test_alarms_stop_after_a_few_misses() -> None:
    forecaster = run([600.0 * k for k in range(8)])
    chances = []
    for misses in range(6):
        at_s = 4200.0 + 600.0 * (misses + 1) - 30.0
        forecaster.advance(at_s)
        told = due(forecaster, at_s)
        chances.append(told[0].returns[60.0] if told else 0.0)
    assert chances[0] > 2.0 * chances[2] > 0.0
    assert chances[1] > 0.2  # missed once, and not forgotten
    assert chances[MAX_MISSES + 1 :] == [0.0, 0.0]


def test_lone_requests_at_regular_times_need_no_copy_and_are_not_due() -> None:
    forecaster = run([600.0 * k for k in range(8)], size=2)
    assert all(due(forecaster, 4300.0 + 60.0 * k) == [] for k in range(20))


def test_pruned_prefixes_leave_the_queue_bounded() -> None:
    forecaster = Forecaster({60.0: Ewma(60.0)}, boundary_tokens=512, max_blocks=50)
    for burst in range(4):
        for key in range(100):
            for second in range(5):
                forecaster.observe(Arrival(1000.0 * burst + 5.0 * key + second, (key,), 512, 512))
    assert due(forecaster, 4000.0) == []
    assert forecaster.tallies()["schedules"] == 0
