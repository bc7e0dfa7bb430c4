from math import inf

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from forecasting import scores
from forecasting.quality import BATCH, MAX_SPELLS, Quality
from models.counts import Counts

MEANS = st.floats(1e-3, 300.0)
SHAPES = st.one_of(st.just(inf), st.floats(0.05, 500.0))
COUNTS = st.integers(0, 400)


def one(value: float) -> scores.Array:
    return np.array([float(value)])


def brute_crps(mean: float, shape: float, count: int) -> float:
    """Return the definition's sum, as far as anything is left of it."""
    k = np.arange(200_000.0)
    if shape == inf:
        below = stats.poisson.cdf(k, mean)
    else:
        below = stats.nbinom.cdf(k, shape, shape / (shape + mean))
    return float(np.sum((below - (k >= count)) ** 2))


@example(mean=63.0, shape=170.75, count=0)  # where SciPy's function is silently wrong
@settings(max_examples=40, deadline=None)
@given(mean=MEANS, shape=SHAPES, count=COUNTS)
def test_crps_is_the_sum_of_its_definition(mean: float, shape: float, count: int) -> None:
    found = scores.crps(one(mean), one(shape), one(count))[0]
    assert found == pytest.approx(brute_crps(mean, shape, count), rel=1e-6, abs=1e-8)


@given(trials=st.integers(1, 40), chance=st.floats(0.0, 1.0), count=st.integers(0, 60))
def test_crps_of_a_few_trials_is_the_sum_of_its_definition(
    trials: int, chance: float, count: int
) -> None:
    k = np.arange(200.0)
    want = np.sum((stats.binom.cdf(k, trials, chance) - (k >= count)) ** 2)
    found = scores.crps(one(trials * chance), one(-trials), one(count))[0]
    assert found == pytest.approx(want, rel=1e-6, abs=1e-8)


@settings(deadline=None)
@given(mean=st.floats(0.01, 40.0), shape=st.sampled_from([0.5, 3.0, inf, -50.0]))
def test_an_interval_covers_what_it_should_of_counts_that_follow_the_forecast(
    mean: float, shape: float
) -> None:
    counts = np.arange(2000.0)
    means, shapes = np.full_like(counts, mean), np.full_like(counts, shape)
    upper = scores.at_most(counts, means, shapes)
    chance = np.diff(upper, prepend=0.0)
    covered = scores.inside(means, shapes, counts, 0.1, 0.9)
    assert float(chance @ covered) == pytest.approx(0.8, abs=1e-6)


def test_an_interval_covers_a_count_by_the_share_of_it_that_lies_within() -> None:
    # P(0) = exp(-0.1) = 0.9048: from 0 to 0.9048, of which 0.1 to 0.9 are inside.
    covered = scores.inside(one(0.1), one(inf), one(0.0), 0.1, 0.9)[0]
    assert covered == pytest.approx(0.8 / 0.904837, rel=1e-4)
    assert scores.inside(one(0.1), one(inf), one(3.0), 0.1, 0.9)[0] == 0.0


def test_crps_of_a_forecast_of_nothing_is_the_count() -> None:
    for shape in (0.3, inf):
        assert scores.crps(one(0.0), one(shape), one(7.0))[0] == pytest.approx(7.0)


def test_crps_is_finite_where_scipys_own_function_is_not() -> None:
    # There a negative binomial is close to normal, whose CRPS at its mean is
    # sd (sqrt 2 - 1) / sqrt(pi) = 0.23370 sd.
    mean, shape = 1e6, 1000.0
    deviation = (mean + mean**2 / shape) ** 0.5
    found = scores.crps(one(mean), one(shape), one(mean))[0]
    assert found == pytest.approx(0.2337 * deviation, rel=0.01)


@settings(max_examples=200, deadline=None)
@given(mean=MEANS, shape=SHAPES, share=st.sampled_from([0.1, 0.5, 0.9]))
def test_quantiles_are_those_of_counts(mean: float, shape: float, share: float) -> None:
    found = scores.quantile(one(mean), one(shape), share)[0]
    expected = Counts(mean, shape).quantile(share)
    # Where the distribution function hits the share to the last bit, either neighbour will do.
    reached = 1.0 - Counts(mean, shape).at_least(min(int(found), expected) + 1)
    assert found == expected or reached == pytest.approx(share, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(mean=MEANS, shape=SHAPES, count=COUNTS)
def test_at_most_is_the_rest_of_at_least(mean: float, shape: float, count: int) -> None:
    found = scores.at_most(one(count), one(mean), one(shape))[0]
    assert found == pytest.approx(1.0 - Counts(mean, shape).at_least(count + 1), abs=1e-9)


def test_deviance_by_hand() -> None:
    # 2 (3 ln(3 / 2) - 1) = 0.43279; a forecast of nothing at all costs a finite amount.
    found = scores.poisson_deviance(np.array([2.0, 0.5, 0.0]), np.array([3.0, 0.0, 1.0]))
    assert found[:2] == pytest.approx([0.432791, 1.0], rel=1e-5)
    assert 50.0 < found[2] < 60.0


@settings(max_examples=100)
@given(mean=MEANS, other=MEANS)
def test_the_true_mean_has_the_least_expected_deviance(mean: float, other: float) -> None:
    k = np.arange(2000.0)
    weight = stats.poisson.pmf(k, mean)
    true, wrong = (
        float(weight @ scores.poisson_deviance(np.full_like(k, m), k)) for m in (mean, other)
    )
    assert true <= wrong + 1e-9


def test_running_scores_are_plain_means() -> None:
    rng = np.random.default_rng(6)
    forecasts = [
        Counts(m, s)
        for m, s in zip(rng.gamma(1.0, 4.0, 1300), rng.gamma(2.0, 1.0, 1300), strict=True)
    ]
    counts = [int(rng.negative_binomial(c.shape, c.shape / (c.shape + c.mean))) for c in forecasts]
    quality = Quality()
    for forecast, count in zip(forecasts, counts, strict=True):
        quality.add(forecast, count)
    found = quality.scores()
    assert found is not None
    mean = np.array([c.mean for c in forecasts])
    came = np.array(counts, dtype=float)
    assert found.labels == 1300
    assert found.deviance == pytest.approx(scores.poisson_deviance(mean, came).mean())
    assert found.came == pytest.approx(came.mean())
    low = [c.quantile(0.1) for c in forecasts]
    high = [c.quantile(0.9) for c in forecasts]
    covered = [lo <= y <= hi for lo, y, hi in zip(low, counts, high, strict=True)]
    assert found.coverage == pytest.approx(np.mean(covered), abs=0.002)
    # The counts were drawn from the forecasts, so both shares agree but for chance.
    assert found.coverage == pytest.approx(found.coverage_due, abs=0.03)


def test_the_interval_of_a_rare_event_holds_zero_only() -> None:
    quality = Quality()
    for k in range(100):
        quality.add(Counts(0.05), int(k < 5))
    found = quality.scores()
    assert found is not None
    assert found.coverage == pytest.approx(0.95)
    assert found.coverage_due == pytest.approx(np.exp(-0.05))


def test_the_second_half_is_told_from_the_first() -> None:
    quality = Quality()
    for k in range(4 * BATCH):
        quality.add(Counts(1.0), 0 if k < 2 * BATCH else 1)
    whole, late = quality.scores(), quality.scores(since=0.5)
    assert whole is not None
    assert late is not None
    assert (whole.came, late.came, late.labels) == (0.5, 1.0, 2 * BATCH)
    assert (whole.deviance, late.deviance) == (1.0, 0.0)


def test_memory_is_bounded_and_nothing_is_lost() -> None:
    quality = Quality()
    labels = (2 * MAX_SPELLS + 7) * BATCH + 3
    forecast = Counts(1.0)
    for _ in range(labels):
        quality.add(forecast, 1)
    found = quality.scores()
    assert found is not None
    assert found.labels == labels
    assert len(quality.curve()) <= MAX_SPELLS
    assert quality.curve()[-1][0] == labels


def test_calibration_compares_means_of_like_forecasts() -> None:
    quality = Quality()
    for k in range(300):
        quality.add(Counts(0.2), int(k % 5 == 0))
        quality.add(Counts(20.0), 30)
    low, high = quality.calibration()
    assert (low.labels, low.forecast, low.came) == pytest.approx((300, 0.2, 0.2))
    assert (high.forecast, high.came) == pytest.approx((20.0, 30.0))


def test_without_labels_there_are_no_scores() -> None:
    assert Quality().scores() is None
    assert Quality().curve() == []
