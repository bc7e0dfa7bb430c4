from math import inf

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


@pytest.mark.parametrize(("mean", "shape"), [(-1.0, 1.0), (inf, 1.0), (1.0, 0.0), (1.0, -2.0)])
def test_a_count_that_cannot_be_is_refused(mean: float, shape: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        Counts(mean, shape)
