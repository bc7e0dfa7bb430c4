"""The default learner: a river pipeline that corrects a Hawkes process, with drift detection."""

from collections import deque
from math import log
from typing import Self

import numpy as np
from river import compose, drift, preprocessing

from models.base import HALF_LIVES_S, Features, decayed_count
from models.counts import Counts
from models.dispersion import Dispersion
from models.hawkes import Hawkes
from models.regression import NegativeBinomialRegression
from models.shortcut import Shortcut
from models.state import (
    State,
    check_version,
    read_number,
    read_numbers,
    read_state,
    read_up_to,
)
from models.terms import TERMS, terms, without_prior

LEAST_CEILING = 20.0
"""The largest count seen is taken to be at least this; forecasts stay below twice of it."""

LABELS_A_CHECK = 20
"""Labels that are put together before the drift detector is asked. Labels one by one swing with
every burst, which is no drift: on a day of bursts that alone would reset the model 250 times."""

CHECKS_KEPT = 256
"""Latest values the detector was given; replayed when a state is read."""


class RiverModel:
    """Hawkes forecast times a learnt correction: `StandardScaler | NegativeBinomialRegression`.

    The mean of an online Hawkes process is the regression's exposure, so a fresh model is a Hawkes
    process, and features correct it as far as they prove to help: logarithms of counts, gaps, ages
    and lengths (`models.terms`), at most twice the largest count ever seen.

    A forecast that is off by the same factor for a while means that things have changed: |log of
    (what came + 1) / (what was forecast + 1)| over 20 labels goes into ADWIN (Bifet and Gavaldà
    2007). Where that rises, the regression becomes unsure of its weights, so it learns fast again,
    and the scatter is learnt anew.

    Parameters
    ----------
    horizon_s
        Seconds to look ahead.

    Attributes
    ----------
    drifts
        How often things have changed so far.

    Raises
    ------
    ValueError
        If `horizon_s` is not positive.

    References
    ----------
    Bifet, A. and Gavaldà, R. (2007). Learning from time-changing data with adaptive windowing.
    SIAM International Conference on Data Mining.
    """

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        nearest_s = min(HALF_LIVES_S, key=lambda half_life_s: abs(half_life_s - horizon_s))
        self._overlap = decayed_count(nearest_s)
        self._hawkes = Hawkes(horizon_s)
        self._scaler = preprocessing.StandardScaler()
        self._regression = NegativeBinomialRegression(TERMS)
        self._pipeline = compose.Pipeline(self._scaler, self._regression)
        self._shortcut: Shortcut | None = None
        self._dispersion = Dispersion()
        self._largest = LEAST_CEILING
        self._detector = drift.ADWIN(clock=1)  # type: ignore[no-untyped-call]
        self._checks: deque[float] = deque(maxlen=CHECKS_KEPT)
        self._block = [0.0, 0.0, 0.0]  # labels, what came, what was forecast
        self.drifts = 0

    def predict_one(self, x: Features) -> Counts:
        """Return the distribution of the number of arrivals within the horizon."""
        mean = self.mean(x)
        return Counts(mean, self._dispersion.shape(mean))

    def mean(self, x: Features) -> float:
        """Return the expected number of arrivals within the horizon."""
        prior = self._hawkes.mean(x)
        if self._shortcut is None:
            self._shortcut = Shortcut(self._scaler, self._regression)
        return min(self._shortcut.predict(without_prior(x), prior), 2.0 * self._largest)

    def learn_one(self, x: Features, count: int) -> None:
        """Take in that `count` arrivals followed within the horizon."""
        self.learn(x, count)

    def learn(self, x: Features, count: int) -> float:
        """Do the same, and return the mean that was forecast before."""
        prior = self._hawkes.mean(x)
        # Labels of one burst say much the same: each counts as less than one of its own.
        own = max(x[self._overlap], 1.0) ** -0.5
        self._pipeline.learn_one(terms(x, prior), count, exposure=prior, w=own)
        self._shortcut = None
        mean = min(self._regression.before, 2.0 * self._largest)
        self._dispersion.learn(mean, count)
        self._hawkes.learn_one(x, count)
        self._largest = max(self._largest, float(count))
        self._watch(mean, count)
        return mean

    def _watch(self, mean: float, count: int) -> None:
        labels, came, expected = self._block
        labels, came, expected = labels + 1.0, came + count, expected + mean
        if labels < LABELS_A_CHECK:
            self._block = [labels, came, expected]
            return
        self._block = [0.0, 0.0, 0.0]
        if self._check(abs(log((came + 1.0) / (expected + 1.0)))):
            self.drifts += 1
            self._regression.doubt()
            self._dispersion = Dispersion()

    def _check(self, error: float) -> bool:
        """Return whether `error` and the latest ones are larger than those before."""
        before = self._detector.estimation
        self._detector.update(error)  # type: ignore[no-untyped-call]
        self._checks.append(error)
        return bool(self._detector.drift_detected and self._detector.estimation > before)

    def to_state(self) -> State:
        """Return all that was learnt as plain JSON values."""
        scaler = self._scaler
        return {
            "version": 1,
            "horizon_s": self._horizon_s,
            "hawkes": self._hawkes.to_state(),
            "terms": list(TERMS),
            "labels": scaler.counts[TERMS[0]],
            "means": [scaler.means[name] for name in TERMS],
            "variances": [scaler.vars[name] for name in TERMS],
            "weights": self._regression.weights.tolist(),
            "covariance": self._regression.covariance.ravel().tolist(),
            "dispersion": self._dispersion.to_state(),
            "largest": self._largest,
            "checks": list(self._checks),
            "block": list(self._block),
            "drifts": self.drifts,
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model that `to_state` described.

        The drift detector sees the latest checks only again, so it may find a change a little
        sooner or later than the original one would have.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        check_version(state, 1)
        if state.get("terms") != list(TERMS):
            raise ValueError("terms are not those of this version")
        model = cls(read_number(state, "horizon_s"))
        model._hawkes = Hawkes.from_state(read_state(state, "hawkes"))
        model._dispersion = Dispersion.from_state(read_state(state, "dispersion"))
        model._restore_pipeline(state)
        model._largest = read_number(state, "largest", low=LEAST_CEILING)
        model.drifts = int(read_number(state, "drifts", low=0.0))
        for error in read_up_to(state, "checks", CHECKS_KEPT):
            model._check(error)
        model._block = read_numbers(state, "block", 3, low=0.0)
        return model

    def _restore_pipeline(self, state: State) -> None:
        labels = int(read_number(state, "labels", low=0.0))
        size = len(TERMS) + 1
        scaler = self._scaler
        scaler.counts.update(dict.fromkeys(TERMS, labels))
        scaler.means.update(zip(TERMS, read_numbers(state, "means", size - 1), strict=True))
        variances = read_numbers(state, "variances", size - 1, low=0.0)
        scaler.vars.update(zip(TERMS, variances, strict=True))
        self._regression.weights = np.array(read_numbers(state, "weights", size))
        covariance = np.array(read_numbers(state, "covariance", size * size)).reshape(size, size)
        if not np.allclose(covariance, covariance.T) or np.linalg.eigvalsh(covariance)[0] <= 0.0:
            raise ValueError("covariance should be symmetric and positive definite")
        self._regression.covariance = covariance
