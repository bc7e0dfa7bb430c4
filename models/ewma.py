"""The plain baseline: a decayed arrival count, scaled to the horizon."""

from math import log
from typing import Self

from models.base import Features, decayed_count
from models.counts import Counts
from models.dispersion import Dispersion
from models.state import State, check_version, read_number, read_state

FORGET = 1.0 / 2_000.0
"""What is forgotten of the scale with each arrival expected; a label counts as one at most."""

PRIOR_SCALE = 0.1
"""Scale before anything is known: most prefixes are not asked for again soon."""

MAX_MEAN = 1e6
"""No forecast is larger: keeps the answer to absurd features finite."""


class Ewma:
    """Exponentially weighted rate times horizon, times a scale learnt online.

    The kernel estimate of the rate after a decayed count of C is C · ln 2 / half-life (Diggle
    1985). It is right on average over time, but we only ask right after an arrival, which is in C
    itself: taken as it is, the estimate would claim half a request per half-life for a prefix seen
    once, and be no match for anything. So it gets one free scale, the ratio of what came to what
    it claimed, learnt from all labels with a weak prior and slowly forgotten.

    Parameters
    ----------
    horizon_s
        Seconds to look ahead.
    half_life_s
        Seconds after which an arrival counts half; one of `models.base.HALF_LIVES_S`.

    Raises
    ------
    ValueError
        If either is not positive.

    Examples
    --------
    After each arrival with a decayed count of 2 came one more:

    >>> model = Ewma(horizon_s=15.0, half_life_s=15.0)
    >>> for _ in range(500):
    ...     model.learn_one({"count_hl_15s": 2.0}, 1)
    >>> round(model.predict_one({"count_hl_15s": 4.0}).mean, 1)
    2.0

    References
    ----------
    Diggle, P. (1985). A kernel method for smoothing point process data. Applied Statistics 34(2).
    """

    def __init__(self, horizon_s: float, half_life_s: float = 15.0) -> None:
        if not (horizon_s > 0.0 and half_life_s > 0.0):
            raise ValueError(
                f"horizon_s and half_life_s must be positive, got {horizon_s!r}, {half_life_s!r}"
            )
        self._horizon_s = horizon_s
        self._half_life_s = half_life_s
        self._feature = decayed_count(half_life_s)
        self._per_count = log(2.0) / half_life_s * horizon_s
        self._came = PRIOR_SCALE
        self._claimed = 1.0
        self._dispersion = Dispersion()

    def predict_one(self, x: Features) -> Counts:
        """Return the distribution of the number of arrivals within the horizon."""
        mean = self.mean(x)
        return Counts(mean, self._dispersion.shape(mean))

    def learn_one(self, x: Features, count: int) -> None:
        """Take in that `count` arrivals followed within the horizon."""
        self.learn(x, count)

    def learn(self, x: Features, count: int) -> float:
        """Do the same, and return the mean that was forecast before."""
        mean = self.mean(x)
        self._dispersion.learn(mean, count)
        keep = 1.0 - FORGET * min(mean, 1.0)
        self._came = keep * self._came + count
        self._claimed = keep * self._claimed + self._claim(x)
        return mean

    def to_state(self) -> State:
        """Return all that was learnt as plain JSON values."""
        return {
            "version": 1,
            "horizon_s": self._horizon_s,
            "half_life_s": self._half_life_s,
            "came": self._came,
            "claimed": self._claimed,
            "dispersion": self._dispersion.to_state(),
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
        model = cls(read_number(state, "horizon_s"), read_number(state, "half_life_s"))
        model._came = read_number(state, "came", low=0.0)
        model._claimed = read_number(state, "claimed", low=1e-300)
        model._dispersion = Dispersion.from_state(read_state(state, "dispersion"))
        return model

    def _claim(self, x: Features) -> float:
        return min(max(x[self._feature], 0.0) * self._per_count, MAX_MEAN)

    def mean(self, x: Features) -> float:
        """Return the expected number of arrivals within the horizon."""
        return min(self._claim(x) * self._came / self._claimed, MAX_MEAN)
