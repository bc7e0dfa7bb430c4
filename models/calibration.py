"""Puts a frozen model's forecasts right, online: by a factor, and by how far counts scatter."""

from typing import Self

from models.counts import Counts
from models.dispersion import Dispersion
from models.state import State, check_version, read_number, read_state

FORGET = 1.0 / 2_000.0
"""What is forgotten with each label for which much was forecast, and less where little was."""

WEIGHT = 10.0
"""What the factor taken over from before, at first 1, counts as: 40 labels for which 1 was said."""

MAX_MEAN = 1e6
"""No forecast is larger."""


class Calibration:
    """Turns the mean that a frozen model says into a distribution of counts.

    The mean is multiplied by the ratio of what came to what was said, slowly forgotten. A label for
    which m was said counts by m / (1 + m)². Large counts scatter more and come in clumps, and where
    next to nothing was said a burst is no matter of scale: with a weight of 1 / (1 + m), one burst
    that no tree saw coming made the factor 12. The spread is `Dispersion`.

    Examples
    --------
    >>> calibration = Calibration()
    >>> for _ in range(5000):
    ...     _ = calibration.learn(said=2.0, count=3)
    >>> round(calibration.counts(said=4.0).mean, 1)
    6.0
    """

    __slots__ = ("_came", "_claimed", "_dispersion")

    def __init__(self) -> None:
        self._came = self._claimed = WEIGHT
        self._dispersion = Dispersion()

    def counts(self, said: float) -> Counts:
        """Return the distribution of the count for which the model says a mean of `said`."""
        mean = self.mean(said)
        return Counts(mean, self._dispersion.shape(mean))

    def mean(self, said: float) -> float:
        """Return the mean for one that the model says."""
        return min(said * self._came / self._claimed, MAX_MEAN)

    def learn(self, said: float, count: int) -> float:
        """Take in that `count` came where the model said `said`; return the mean before."""
        mean = self.mean(said)
        self._dispersion.learn(mean, count)
        share = said / (1.0 + said)
        weight, keep = share / (1.0 + said), 1.0 - FORGET * share
        self._came = keep * self._came + weight * count
        self._claimed = keep * self._claimed + weight * said
        return mean

    def doubt(self) -> None:
        """Keep the factor, but as if it had been learnt from `WEIGHT` arrivals only."""
        self._came, self._claimed = WEIGHT * self._came / self._claimed, WEIGHT

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
