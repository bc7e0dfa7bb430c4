"""Puts a frozen model's forecasts right, online: by a factor, and by how far counts scatter."""

from typing import Self

from models.counts import Counts
from models.dispersion import Dispersion
from models.state import State, check_version, read_number, read_state

FORGET = 1.0 / 2_000.0
"""What is forgotten with each label for which much was forecast, and less where little was."""

WEIGHT = 20.0
"""Arrivals that the model's own word, a factor of 1, counts as before the first label."""

MAX_MEAN = 1e6
"""No forecast is larger."""


class Calibration:
    """Turns the mean that a frozen model says into a distribution of counts.

    The mean is multiplied by the ratio of what came to what was said, slowly forgotten. Where more
    is forecast counts scatter more and come in clumps, so a label counts by 1 / (1 + mean), as in a
    likelihood with variance mean + mean²: no single burst decides. The spread is `Dispersion`.

    Examples
    --------
    >>> calibration = Calibration()
    >>> for _ in range(5000):
    ...     calibration.learn(said=2.0, count=3)
    >>> round(calibration.counts(said=4.0).mean, 1)
    6.0
    """

    __slots__ = ("_came", "_claimed", "_dispersion")

    def __init__(self) -> None:
        self._came = self._claimed = WEIGHT
        self._dispersion = Dispersion()

    def counts(self, said: float) -> Counts:
        """Return the distribution of the count for which the model says a mean of `said`."""
        mean = self._mean(said)
        return Counts(mean, self._dispersion.shape(mean))

    def learn(self, said: float, count: int) -> None:
        """Take in that `count` came where the model said a mean of `said`."""
        mean = self._mean(said)
        self._dispersion.learn(mean, count)
        weight = 1.0 / (1.0 + mean)
        keep = 1.0 - FORGET * said / (1.0 + said)
        self._came = keep * self._came + weight * count
        self._claimed = keep * self._claimed + weight * said

    def to_state(self) -> State:
        """Return all that was learnt as plain JSON values."""
        return {
            "version": 1,
            "came": self._came,
            "claimed": self._claimed,
            "dispersion": self._dispersion.to_state(),
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return what `to_state` described.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        check_version(state, 1)
        calibration = cls()
        calibration._came = read_number(state, "came", low=0.0)
        calibration._claimed = read_number(state, "claimed", low=1e-300)
        calibration._dispersion = Dispersion.from_state(read_state(state, "dispersion"))
        return calibration

    def _mean(self, said: float) -> float:
        return min(said * self._came / self._claimed, MAX_MEAN)
