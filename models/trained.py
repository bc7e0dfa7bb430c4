"""What learners that are fitted to a log have in common: before, at and after the fit."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import exp
from typing import Self

from models.base import Features
from models.calibration import Calibration
from models.counts import Counts
from models.hawkes import Hawkes
from models.snapshot import recall
from models.state import State, check_version, read_number, read_state
from models.training_log import TrainingLog

MAX_LOG = 13.8
"""No forecast is larger than exp(13.8), about a million."""


class Body(ABC):
    """The fitted part of a learner; it never changes.

    Attributes
    ----------
    names
        Features it looks at.
    """

    names: tuple[str, ...]

    @abstractmethod
    def log_mean(self, row: Sequence[float]) -> float:
        """Return the logarithm of the mean count, for the values of `names` in their order."""

    @abstractmethod
    def to_state(self) -> State:
        """Return all of it as plain JSON values."""

    def mean(self, x: Features) -> float:
        """Return the mean count for features `x`."""
        return recall(x, self._mean)

    def _mean(self, x: Features) -> float:
        return exp(min(self.log_mean([*map(x.__getitem__, self.names)]), MAX_LOG))


class Trained(ABC):
    """A Hawkes process until it is fitted; then what was fitted, put right online.

    Fitting is done twice. The first time, without the newest fifth of the log, which then says
    when to stop, by what factor to multiply, and how far counts scatter: on what a model was fitted
    to it looks better than it is. The second time just as long, on everything.

    Parameters
    ----------
    horizon_s
        Seconds to look ahead.

    Raises
    ------
    ValueError
        If `horizon_s` is not positive.
    """

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._hawkes = Hawkes(horizon_s)
        self._body: Body | None = None
        self._calibration = Calibration()

    @staticmethod
    @abstractmethod
    def _fitted(log: TrainingLog, seed: int) -> tuple[Body, Body]:
        """Return what was fitted to all but the newest part of `log`, and to all of it."""

    @staticmethod
    @abstractmethod
    def _read(state: State) -> Body:
        """Return what `Body.to_state` described."""

    def fit(self, xs: Sequence[Features], counts: Sequence[int], *, seed: int) -> None:
        """Fit to samples in the order of time and what followed each.

        Raises
        ------
        ValueError
            If there are not as many counts as samples, or there is too little to learn from.
        """
        log = TrainingLog.read(xs, counts)
        trial, self._body = self._fitted(log, seed)
        self._calibration = Calibration()
        for x, count in zip(xs[log.split :], counts[log.split :], strict=True):
            self._calibration.learn(trial.mean(x), count)
        self._calibration.doubt()  # it was learnt for the trial

    def predict_one(self, x: Features) -> Counts:
        """Return the distribution of the number of arrivals within the horizon."""
        if self._body is None:
            return self._hawkes.predict_one(x)
        return self._calibration.counts(self._body.mean(x))

    def mean(self, x: Features) -> float:
        """Return the expected number of arrivals within the horizon."""
        if self._body is None:
            return self._hawkes.mean(x)
        return self._calibration.mean(self._body.mean(x))

    def learn_one(self, x: Features, count: int) -> None:
        """Take in that `count` arrivals followed within the horizon; what was fitted stays."""
        self.learn(x, count)

    def learn(self, x: Features, count: int) -> float:
        """Do the same, and return the mean that was forecast before."""
        if self._body is None:
            return self._hawkes.learn(x, count)
        return self._calibration.learn(self._body.mean(x), count)

    def to_state(self) -> State:
        """Return all that was learnt as plain JSON values."""
        return {
            "version": 1,
            "horizon_s": self._horizon_s,
            "hawkes": self._hawkes.to_state(),
            "fitted": None if self._body is None else self._body.to_state(),
            "calibration": self._calibration.to_state(),
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model that `to_state` described.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        check_version(state, 1)
        model = cls(read_number(state, "horizon_s"))
        model._hawkes = Hawkes.from_state(read_state(state, "hawkes"))
        if state.get("fitted", "missing") is not None:
            model._body = cls._read(read_state(state, "fitted"))
        model._calibration = Calibration.from_state(read_state(state, "calibration"))
        return model
