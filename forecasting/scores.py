"""How well a forecast of a count fits what came: scores, for many forecasts at once.

Every argument is an array, one entry a forecast: `mean` and `shape` of its distribution
(`models.counts`: negative binomial, Poisson where the shape is infinite, binomial where it is
negative), `count` what came, whole numbers as float. Lower is better throughout.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Array = NDArray[np.float64]

LEAST_MEAN = 1e-12
"""A mean below is scored as this: a forecast of nothing at all, if wrong, costs a finite amount."""

LARGE_SHAPE = 20.0
"""Shapes above need another form of the hypergeometric function in `crps`."""


def poisson_deviance(mean: Array, count: Array) -> Array:
    """Return the unit Poisson deviance, 2 (y log(y / m) - (y - m)), with 0 log 0 = 0.

    It looks at means only. Differences between two forecasters are twice the difference of their
    Poisson log-likelihoods (McCullagh and Nelder 1989, section 2.3).

    >>> poisson_deviance(np.array([1.0, 2.0]), np.array([0.0, 2.0]))
    array([2., 0.])
    """
    mean = np.maximum(mean, LEAST_MEAN)
    deviance: Array = 2.0 * (special.xlogy(count, count / mean) - (count - mean))
    return deviance


def crps(mean: Array, shape: Array, count: Array) -> Array:
    """Return the continuous ranked probability score, Σ_k (P(X <= k) - 1{y <= k})².

    In arrivals, like an absolute error, which it is for a forecast without spread (Gneiting and
    Raftery 2007; for counts, Czado, Gneiting and Held 2009). The sum has closed forms, of Wei and
    Held (2014).

    >>> crps(np.array([2.0]), np.array([np.inf]), np.array([2.0])).round(4)
    array([0.3112])

    References
    ----------
    Gneiting, T. and Raftery, A. E. (2007). Strictly proper scoring rules, prediction, and
    estimation. Journal of the American Statistical Association 102(477).

    Czado, C., Gneiting, T. and Held, L. (2009). Predictive model assessment for count data.
    Biometrics 65(4).

    Wei, W. and Held, L. (2014). Calibration tests for count data. TEST 23(4).
    """
    mean = np.maximum(mean, LEAST_MEAN)
    score = np.empty_like(mean)
    poisson, narrow = np.isinf(shape), shape < 0.0
    score[poisson] = _crps_poisson(mean[poisson], count[poisson])
    score[narrow] = _crps_binomial(mean[narrow], shape[narrow], count[narrow])
    wide = ~(poisson | narrow)
    score[wide] = _crps_negative_binomial(mean[wide], shape[wide], count[wide])
    return score


def quantile(mean: Array, shape: Array, share: float) -> Array:
    """Return the smallest count that is not passed with probability `share` or more.

    >>> quantile(np.array([2.0, 0.01]), np.array([np.inf, 1.0]), 0.9)
    array([4., 0.])
    """
    found = np.zeros_like(mean)
    poisson = np.isinf(shape)
    beyond_zero = at_most(np.zeros_like(mean), mean, shape) < share
    rows = beyond_zero & poisson
    found[rows] = stats.poisson.ppf(share, mean[rows])
    rows = beyond_zero & (shape < 0.0)
    found[rows] = _quantile_binomial(mean[rows], shape[rows], share)
    rows = beyond_zero & ~poisson & (shape > 0.0)
    found[rows] = stats.nbinom.ppf(share, shape[rows], shape[rows] / (shape[rows] + mean[rows]))
    return found


def at_most(count: Array, mean: Array, shape: Array) -> Array:
    """Return the probability of at most `count` arrivals, 0 where that is negative."""
    upper = np.maximum(count, 0.0) + 1.0
    poisson = np.isinf(shape)
    wide = np.where(poisson | (shape < 0.0), 1.0, shape)
    probability = special.betainc(wide, upper, wide / (wide + mean))
    probability = np.where(poisson, special.gammaincc(upper, mean), probability)
    narrow = shape < 0.0
    left = 1.0 - shape[narrow] - upper[narrow]
    chance = np.minimum(mean[narrow] / -shape[narrow], 1.0)
    passed = special.betainc(upper[narrow], np.maximum(left, 1e-300), chance)
    probability[narrow] = np.where(left > 0.0, 1.0 - passed, 1.0)
    return np.where(count < 0.0, 0.0, probability)


def inside(mean: Array, shape: Array, count: Array, low: float, high: float) -> Array:
    """Return how much of each count lies between the `low` and the `high` quantile, 0 to 1.

    A count stands for the stretch from P(X < y) to P(X <= y), and the answer is the part of it that
    lies in [low, high]: for forecasts that hold it is high - low on average, which a plain share of
    counts between two whole quantiles isn't (Czado, Gneiting and Held 2009, section 2.1).

    >>> inside(np.array([0.1]), np.array([np.inf]), np.array([0.0]), 0.1, 0.9).round(4)
    array([0.8841])
    """
    upper = at_most(count, mean, shape)
    lower = at_most(count - 1.0, mean, shape)
    covered = np.minimum(upper, high) - np.maximum(lower, low)
    share: Array = np.clip(covered, 0.0, None) / np.maximum(upper - lower, 1e-300)
    return np.minimum(share, 1.0)


def pinball(forecast: Array, count: Array, share: float) -> Array:
    """Return the pinball loss of a `share` quantile; on average least for the true one.

    >>> pinball(np.array([4.0]), np.array([6.0]), 0.9)  # 2 too few, at 0.9 each
    array([1.8])
    """
    error = count - forecast
    return np.maximum(share * error, (share - 1.0) * error)


def _crps_poisson(mean: Array, count: Array) -> Array:
    below = special.gammaincc(count + 1.0, mean)
    exactly = np.exp(special.xlogy(count, mean) - mean - special.gammaln(count + 1.0))
    bessel = special.ive(0, 2.0 * mean) + special.ive(1, 2.0 * mean)
    score: Array = (count - mean) * (2.0 * below - 1.0) + mean * (2.0 * exactly - bessel)
    return score


def _crps_binomial(mean: Array, shape: Array, count: Array) -> Array:
    score = np.zeros_like(mean)
    last = max(int(np.max(np.maximum(count, -shape), initial=0.0)), 0)
    for k in range(last + 1):
        below = at_most(np.full_like(mean, k), mean, shape)
        score += (below - (count <= k)) ** 2
    return score


def _quantile_binomial(mean: Array, shape: Array, share: float) -> Array:
    found = np.zeros_like(mean)
    left = np.arange(len(mean))
    while len(left):
        left = left[at_most(found[left], mean[left], shape[left]) < share]
        found[left] += 1.0
    return found


def _crps_negative_binomial(mean: Array, shape: Array, count: Array) -> Array:
    none = shape / (shape + mean)
    below = special.betainc(shape, count + 1.0, none)
    longer = np.where(count >= 1.0, special.betainc(shape + 1.0, np.maximum(count, 1.0), none), 0.0)
    spread = mean * (shape + mean) / shape
    z = 4.0 * spread / shape
    pairs = special.hyp2f1(shape + 1.0, 0.5, 2.0, -z)
    # From a shape of 100 or so SciPy's answer may be nan, or plainly wrong. With Pfaff's
    # transformation it is right, but slow for small shapes.
    large = shape > LARGE_SHAPE
    bent = special.hyp2f1(1.0 - shape[large], 0.5, 2.0, z[large] / (1.0 + z[large]))
    pairs[large] = bent / np.sqrt(1.0 + z[large])
    score: Array = count * (2.0 * below - 1.0) - spread * (none * (2.0 * longer - 1.0) + pairs)
    return score
