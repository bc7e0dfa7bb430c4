from math import exp, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.returning import Return, with_return
from forecasting.silence import after_silence
from models.counts import Counts

TOLD = [(1.0, Counts(8.0, 2.0)), (5.0, Counts(10.0, 2.0))]


def test_without_silence_forecasts_stay_as_they_were() -> None:
    assert after_silence(TOLD, 0.0) == [count for _, count in TOLD]


def test_what_is_left_is_a_mean_of_two_views_as_worked_by_hand() -> None:
    # By 2 s 8.5 were expected, by 3 s 9. After the last horizon 0.5/s x 5 s x ln(t / 5 s).
    short, long = after_silence(TOLD, 2.0)
    assert short.mean == pytest.approx(0.7 * 0.5 / sqrt(1 + 8.5 / 2) + 0.3 * 8 / (1 + 8 * 2 / 2))
    coming = (1.5 + 2.5 * log(7 / 5)) / sqrt(1 + 8.5 / 2)
    assert long.mean == pytest.approx(0.7 * coming + 0.3 * 10 / (1 + 10 * 2 / 5 / 2))
    assert short.shape == 2.0


def test_a_longer_horizon_that_was_told_less_has_no_more_to_come() -> None:
    odd = [(1.0, Counts(8.0, 1.0)), (5.0, Counts(2.0, 1.0))]
    means = [count.mean for count in after_silence(odd, 2.0)]
    assert means == pytest.approx([0.3 * 8 / 17, 0.3 * 2 / 1.8])


@given(
    means=st.lists(st.floats(0.0, 1e3), min_size=4, max_size=4),
    silent_s=st.floats(0.001, 1e6),
    longer=st.floats(1.0, 10.0),
)
def test_less_is_expected_the_longer_the_silence_after_the_last_horizon(
    means: list[float], silent_s: float, longer: float
) -> None:
    told = [(h, Counts(m, 1.0)) for h, m in zip((1.0, 5.0, 15.0, 60.0), sorted(means), strict=True)]
    now, later = after_silence(told, 60.0 + silent_s), after_silence(told, 60.0 + silent_s * longer)
    for sooner, after in zip(now, later, strict=True):
        assert 0.0 <= after.mean <= sooner.mean + 1e-9


@given(mean=st.floats(0.0, 50.0), chance=st.floats(0.0, 0.99), arrivals=st.floats(1.0, 100.0))
def test_a_burst_that_may_begin_adds_its_arrivals_and_its_chance(
    mean: float, chance: float, arrivals: float
) -> None:
    count = Counts(mean)
    both = with_return(count, Return(chance, chance * arrivals))
    assert both.mean == pytest.approx(mean + chance * arrivals)
    want = 1.0 - (1.0 - count.at_least(1)) * (1.0 - chance)
    want = min(want, 1.0 - exp(-both.mean))  # no more than so few can have, evenly spread
    assert both.at_least(1) == pytest.approx(want, abs=0.02)
