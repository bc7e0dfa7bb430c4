"""Negative binomial regression that learns from one label at a time, as a river regressor."""

from collections.abc import Hashable, Sequence
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import base

Vector = NDArray[np.float64]

SHAPE = 3.0
"""Shape of the negative binomial in the likelihood: how little a large count says by itself."""

PRIOR_VARIANCE = 0.02
"""Variance of a weight before anything is known, and the most it ever gets back to."""

FORGET = 1.0 / 3_000.0
"""What is forgotten with each label that says as much as one arrival, or more."""

LARGEST_TERM = 4.0
"""Scaled terms beyond are pulled in: one outlier must not decide."""

LARGEST_CORRECTION = 5.0
"""The exposure is never corrected by more than exp(5), about 150 times, up or down."""


class NegativeBinomialRegression(base.Regressor):
    """Log-linear regression of counts, y ~ NB(exposure · exp(w · x), shape), fitted recursively.

    Weights have a normal prior, and each label moves them to where prior and likelihood balance:
    with s = x' P x the variance of the linear predictor e, the new one solves

        e = e_old + s (y - m) / (1 + m / shape),    m = exposure · exp(e),

    the weights move along P x, and P shrinks by what the label told. This is Fisher scoring made
    recursive (West, Harrison and Migon 1985), with the step solved for implicitly (Toulis and
    Airoldi 2017): it can't overshoot, whatever the count. Steps of gradient methods, tried first
    (river's `LinearRegression` with Poisson loss; SGD, AdaGrad, Adam, Newton), either crawl where
    labels are rare or blow up in the first burst of hundreds.

    Old labels are forgotten by dividing P; no weight becomes less sure than it was at the start,
    so a term that is constant for long does no harm when it moves again.

    Parameters
    ----------
    names
        Terms that are looked at, in this order; scaled to mean 0 and variance 1 beforehand.

    Attributes
    ----------
    before
        What was forecast for the label learnt last, right before it was learnt.

    Examples
    --------
    Counts that are three times the exposure:

    >>> regression = NegativeBinomialRegression(["x"])
    >>> for _ in range(2000):
    ...     regression.learn_one({"x": 0.0}, 6, exposure=2.0)
    >>> round(regression.predict_one({"x": 0.0}, exposure=1.0), 1)
    3.0

    References
    ----------
    West, M., Harrison, P. J. and Migon, H. S. (1985). Dynamic generalized linear models and
    Bayesian forecasting. Journal of the American Statistical Association 80(389).

    Toulis, P. and Airoldi, E. M. (2017). Asymptotic and finite-sample properties of estimators
    based on stochastic gradients. Annals of Statistics 45(4).
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.weights = np.zeros(len(self.names) + 1)
        self.covariance = np.eye(len(self.names) + 1) * PRIOR_VARIANCE
        self.before = 0.0

    def predict_one(self, x: dict[Hashable, Any], exposure: float = 1.0) -> float:
        """Return the expected count."""
        return exposure * exp(self._correction(self._vector(x)))

    def learn_one(
        self, x: dict[Hashable, Any], y: float, exposure: float = 1.0, w: float = 1.0
    ) -> None:
        """Take in that `y` came; the label counts as `w` independent ones."""
        vector = self._vector(x)
        old = self._correction(vector)
        self.before = exposure * exp(old)
        direction = self.covariance @ vector
        spread = float(vector @ direction)
        new = _balance(old, w * spread, y, exposure)
        self.weights += direction * ((new - old) / spread)
        mean = exposure * exp(new)
        self._shrink(direction, spread, told=w * mean / (1.0 + mean / SHAPE))

    def doubt(self) -> None:
        """Be nearly as unsure of every weight as at the start: things have changed."""
        self.covariance += np.eye(len(self.weights)) * PRIOR_VARIANCE
        self._cap()

    def _vector(self, x: dict[Hashable, Any]) -> Vector:
        vector: Vector = np.array([*map(x.__getitem__, self.names), 1.0])
        np.maximum(vector, -LARGEST_TERM, out=vector)
        np.minimum(vector, LARGEST_TERM, out=vector)
        return vector

    def _correction(self, vector: Vector) -> float:
        predictor = float(vector @ self.weights)
        return min(max(predictor, -LARGEST_CORRECTION), LARGEST_CORRECTION)

    def _shrink(self, direction: Vector, spread: float, told: float) -> None:
        learnt = direction[:, None] * direction
        learnt *= told / (1.0 + told * spread)
        self.covariance -= learnt
        self.covariance *= 1.0 / (1.0 - FORGET * min(told, 1.0))
        self._cap()

    def _cap(self) -> None:
        """Scale rows and columns so that no variance exceeds the prior's; stays a covariance."""
        variances = self.covariance.diagonal()
        if variances.max() > PRIOR_VARIANCE:
            scale = np.sqrt(PRIOR_VARIANCE / np.maximum(variances, PRIOR_VARIANCE))
            self.covariance *= scale[:, None] * scale


def _balance(old: float, spread: float, count: float, exposure: float) -> float:
    """Return the e that solves e = old + spread (count - m) / (1 + m / shape), by Newton's steps.

    The right side falls with e, so there is one solution; steps are at most 1 long, and e stays
    within the largest correction.
    """
    predictor = old
    for _ in range(10):
        mean = exposure * exp(predictor)
        calm = 1.0 + mean / SHAPE
        gap = predictor - old - spread * (count - mean) / calm
        slope = 1.0 + spread * mean * (1.0 + count / SHAPE) / (calm * calm)
        step = min(max(gap / slope, -1.0), 1.0)
        predictor -= step
        if abs(step) < 1e-6:
            break
    return min(max(predictor, -LARGEST_CORRECTION), LARGEST_CORRECTION)
