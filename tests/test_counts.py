from math import inf

import numpy as np
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


@given(st.floats(0.1, 5.0), st.floats(1.0, 10.0), st.floats(0.0, 2.0))
def test_after_silence_is_bayes_rule_on_the_rate(
    mean: float, shape: float, horizons: float
) -> None:
    # Weigh a fine grid of rates by their prior and by the chance of nothing: exp(-rate * time).
    rates = stats.gamma.ppf(np.linspace(0.5e-4, 1 - 0.5e-4, 10_000), shape, scale=mean / shape)
    weights = np.exp(-rates * horizons)
    want = float((rates * weights).sum() / weights.sum())
    left = Counts(mean, shape).after_silence(horizons)
    assert left.mean == pytest.approx(want, rel=0.02)
    assert left.shape == shape


def test_silence_says_nothing_where_the_rate_is_certain() -> None:
    assert Counts(5.0).after_silence(100.0) == Counts(5.0)


@pytest.mark.parametrize(("mean", "shape"), [(-1.0, 1.0), (inf, 1.0), (1.0, 0.0), (1.0, -2.0)])
def test_a_count_that_cannot_be_is_refused(mean: float, shape: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        Counts(mean, shape)
