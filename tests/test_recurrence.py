"""When bursts are due, worked by hand where it can be."""

from math import sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.recurrence import (
    LARGEST_SPREAD,
    MAX_MISSES,
    PRIOR_SPREAD,
    Family,
    Occurrence,
    Schedule,
    schedule,
)


def found(*starts_s: float, family: Family | None = None) -> Schedule | None:
    past = [Occurrence(start_s, 40, 10.0) for start_s in starts_s[:-1]]
    return schedule(past, starts_s[-1], family or Family())


def every(period_s: float, *, spread_s: float = 10.0, misses: float = 0.1) -> Schedule:
    return Schedule(
        0.0, period_s, period_s, spread_s, (1.0, 1.1, 1.2, 1.3), 8.0, misses, 40.0, 10.0
    )


def test_three_punctual_starts_make_a_schedule_with_the_familys_scatter() -> None:
    job = found(0.0, 600.0, 1200.0)
    assert job is not None
    assert (job.period_s, job.first_s) == (600.0, 1800.0)
    # Four prior starts at 60 s of scatter, and three of its own at 0, of which the line takes two.
    assert job.spread_s == pytest.approx(sqrt(4 * 60.0**2 / (4 + 3 - 2)))
    # A line through 0, 1, 2 looked at in 3: 1 + 1/3 + (3 - 1)² / 2.
    assert job.levers[0] == pytest.approx(sqrt(1 + 1 / 3 + 2))
    assert (job.size, job.span_s) == (40.0, 10.0)


def test_a_start_a_minute_late_delays_the_next_one_by_less() -> None:
    job = found(*(600.0 * k for k in range(7)), 4260.0)
    assert job is not None
    # A line through 0 ... 7: the last point moves what is at 8 by 1/8 + (8 - 3.5) (7 - 3.5) / 42.
    assert job.first_s == pytest.approx(4800.0 + 60.0 * 0.5)


def test_a_missed_burst_is_a_gap_of_two_periods() -> None:
    job = found(0.0, 600.0, 1800.0, 2400.0)
    assert job is not None
    assert (job.period_s, job.first_s) == pytest.approx((600.0, 3000.0))


def test_two_starts_or_an_irregular_line_of_them_make_no_schedule() -> None:
    assert found(0.0, 600.0) is None
    assert found(0.0, 100.0, 1100.0, 1250.0, 1900.0, 4000.0, 4090.0) is None


def test_intervals_below_a_minute_are_no_period() -> None:
    assert found(0.0, 30.0, 60.0) is None


def test_what_is_said_before_at_and_after_the_time_due() -> None:
    job = every(600.0)
    assert job.chance(300.0, 60.0) < 1e-6
    assert job.chance(570.0, 60.0) == pytest.approx(0.83, abs=0.03)  # 0.95 x 0.9, nearly all of it
    assert job.chance(700.0, 60.0) < 1e-3


def test_a_job_missed_once_is_expected_again_and_one_missed_often_is_not() -> None:
    job = every(600.0)
    chances = [job.chance(600.0 * k - 30.0, 60.0) for k in range(1, MAX_MISSES + 3)]
    # Missed once: stopped has odds of 0.05 to 0.95 x 0.1, so 0.66 that it goes on, less what is
    # missed again or stops by then: x 0.95 x 0.9.
    assert chances[1] == pytest.approx(0.66 * 0.95 * 0.9, abs=0.03)
    assert chances == sorted(chances, reverse=True)
    assert chances[3] < 0.02
    assert chances[4] < 1e-4


@given(
    now_s=st.floats(0.0, 3000.0),
    first_s=st.floats(0.0, 300.0),
    then_s=st.floats(0.0, 300.0),
    spread_s=st.floats(5.0, 150.0),
)
def test_not_now_and_not_then_is_not_at_all(
    now_s: float, first_s: float, then_s: float, spread_s: float
) -> None:
    job = every(600.0, spread_s=spread_s)
    neither = (1.0 - job.chance(now_s, first_s)) * (1.0 - job.chance(now_s + first_s, then_s))
    assert 1.0 - job.chance(now_s, first_s + then_s) == pytest.approx(neither, abs=1e-5)
    assert 0.0 <= job.chance(now_s, first_s) <= job.chance(now_s, first_s + then_s) <= 1.0


@given(now_s=st.floats(0.0, 3000.0), within_s=st.floats(0.1, 300.0))
def test_no_more_arrivals_are_expected_than_a_burst_has(now_s: float, within_s: float) -> None:
    job = every(600.0)
    arrivals = job.arrivals(now_s, within_s)
    assert 0.0 <= arrivals <= 40.0 * job.chance(now_s, within_s) + 1e-9


def test_within_less_than_its_span_only_part_of_a_burst_comes() -> None:
    job = every(600.0)
    assert job.arrivals(570.0, 1.0) == pytest.approx(40.0 * 0.1 * 0.5 * job.chance(570.0, 1.0))


def test_a_family_learns_how_punctual_its_jobs_are() -> None:
    family, rng = Family(), Random(1)
    job = every(600.0)
    for _ in range(300):
        family.learn(job, 600.0 + rng.gauss(0.0, 12.0))
    assert family.spread == pytest.approx(12.0 / 600.0, rel=0.4)
    assert family.miss_share < 0.02
    tight, loose = found(0.0, 600.0, 1200.0, family=family), found(0.0, 600.0, 1200.0)
    assert tight is not None
    assert loose is not None
    assert tight.spread_s < loose.spread_s / 2


def test_a_family_learns_how_often_jobs_are_missed() -> None:
    family = Family()
    for number in range(600):
        family.learn(every(600.0), 1200.0 if number % 2 else 600.0)
    assert family.miss_share == pytest.approx(1 / 3, abs=0.08)


def test_a_start_far_from_due_counts_no_more_than_the_largest_spread() -> None:
    family = Family()
    for _ in range(1000):
        family.learn(every(600.0), 890.0)
    assert PRIOR_SPREAD < family.spread <= LARGEST_SPREAD
    before = family.spread
    family.learn(every(600.0), 1e6)  # later than the schedule holds: nothing is learnt
    assert family.spread == before
