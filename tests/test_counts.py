from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models.counts import Counts

means = st.floats(0.01, 200.0)
shapes = st.floats(0.05, 50.0)


@given(means, shapes, st.integers(0, 300))
def test_at_least_is_that_of_the_negative_binomial(mean: float, shape: float, count: int) -> None:
    want = stats.nbinom.sf(count - 1, shape, shape / (shape + mean))
    assert Counts(mean, shape).at_least(count) == pytest.approx(want, rel=1e-6, abs=1e-12)


@given(means, st.integers(0, 300))
def test_an_infinite_shape_is_poisson(mean: float, count: int) -> None:
    want = stats.poisson.sf(count - 1, mean)
    assert Counts(mean).at_least(count) == pytest.approx(want, rel=1e-6, abs=1e-12)


@given(means, shapes, st.floats(0.01, 0.99))
def test_a_quantile_is_the_smallest_count_with_that_much_below(
    mean: float, shape: float, share: float
) -> None:
    counts = Counts(mean, shape)
    found = counts.quantile(share)
    assert 1.0 - counts.at_least(found + 1) >= share
    assert found == 0 or 1.0 - counts.at_least(found) < share


@given(st.integers(1, 60), st.floats(0.0, 1.0), st.integers(0, 70))
def test_a_negative_shape_is_so_many_trials(trials: int, chance: float, count: int) -> None:
    want = stats.binom.sf(count - 1, trials, chance)
    counts = Counts(trials * chance, -float(trials))
    assert counts.at_least(count) == pytest.approx(want, rel=1e-6, abs=1e-12)
    assert counts.variance == pytest.approx(trials * chance * (1.0 - chance), abs=1e-9)


@given(means, st.floats(0.0, 0.95), st.integers(1, 50))
def test_what_may_not_come_at_all_comes_less_often_and_is_then_more(
    mean: float, idle: float, count: int
) -> None:
    want = (1.0 - idle) * stats.poisson.sf(count - 1, mean / (1.0 - idle))
    assert Counts(mean, idle=idle).at_least(count) == pytest.approx(want, rel=1e-6, abs=1e-12)
    busy = mean / (1.0 - idle)
    second_moment = (1.0 - idle) * (busy + busy * busy)
    assert Counts(mean, idle=idle).variance == pytest.approx(second_moment - mean * mean)


@pytest.mark.parametrize(
    ("mean", "shape", "idle"),
    [
        (-1.0, 1.0, 0.0),
        (inf, 1.0, 0.0),
        (1.0, 0.0, 0.0),
        (1.0, nan, 0.0),
        (1.1, -1.0, 0.0),
        (0.6, -1.0, 0.5),
        (1.0, 1.0, 1.0),
        (1.0, 1.0, -0.1),
    ],
)
def test_a_count_that_cannot_be_is_refused(mean: float, shape: float, idle: float) -> None:
    with pytest.raises(ValueError, match="must "):
        Counts(mean, shape, idle)
