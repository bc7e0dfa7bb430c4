"""How far counts scatter, put right by how often they fall where they should."""

from bisect import bisect_right
from math import exp, inf
from typing import Self

from models.counts import Counts
from models.dispersion import LEVELS, MAX_SHAPE, MIN_SHAPE, Dispersion
from models.state import State, check_version, read_numbers, read_state

LOW, HIGH = 0.1, 0.9
"""The quantiles between which counts should lie: an 80 % interval."""

RATE = 0.01
"""How much the logarithm of a shape moves for a count that lies outside wholly."""

LARGEST_LOG = 3.0
"""Shapes are corrected by no more than exp(3), about 20 times, up or down."""


class Spread:
    """Shapes of `Dispersion`, wider where too few counts lie in the interval, else narrower.

    Variances are matched by moments, which a few large errors decide; what a forecast is asked for
    is its quantiles. So each level's shape is multiplied by a factor whose logarithm goes up by
    rate · (inside - 0.8) with each count, inside being the part of it within the interval: gradient
    steps on the coverage, as in adaptive conformal inference (Gibbs and Candès 2021).

    Examples
    --------
    >>> spread = Spread()
    >>> for _ in range(2000):  # always as forecast: the interval is made as narrow as may be
    ...     spread.learn(mean=5.0, count=5)
    >>> round(spread.shape(5.0), 1)
    -5.0

    References
    ----------
    Gibbs, I. and Candès, E. (2021). Adaptive conformal inference under distribution shift. NeurIPS.
    """

    __slots__ = ("_dispersion", "_logs")

    def __init__(self) -> None:
        self._dispersion = Dispersion()
        self._logs = [0.0] * (len(LEVELS) + 1)

    def shape(self, mean: float) -> float:
        """Return the shape for a forecast of `mean`, as `Dispersion.shape` does."""
        shape = self._dispersion.shape(mean)
        if shape < 0.0 or shape == inf:
            return shape
        shape *= exp(self._logs[bisect_right(LEVELS, mean)])
        return max(shape, MIN_SHAPE) if shape < MAX_SHAPE else inf

    def learn(self, mean: float, count: int) -> None:
        """Take in that `count` came where `mean` was forecast."""
        shape = self.shape(mean)
        if shape > 0.0 and mean > 0.0:
            level = bisect_right(LEVELS, mean)
            moved = self._logs[level] + RATE * min(mean, 1.0) * (
                _inside(Counts(mean, shape), count) - (HIGH - LOW)
            )
            self._logs[level] = min(max(moved, -LARGEST_LOG), LARGEST_LOG)
        self._dispersion.learn(mean, count)

    def to_state(self) -> State:
        """Return all that was learnt as plain values."""
        return {
            "version": 1,
            "dispersion": self._dispersion.to_state(),
            "logs": list(self._logs),
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
        spread = cls()
        spread._dispersion = Dispersion.from_state(read_state(state, "dispersion"))
        spread._logs = read_numbers(state, "logs", len(LEVELS) + 1, low=-LARGEST_LOG)
        if max(spread._logs) > LARGEST_LOG:
            raise ValueError(f"logs should be at most {LARGEST_LOG}, got {max(spread._logs)!r}")
        return spread


def _inside(counts: Counts, count: int) -> float:
    """Return how much of a count lies in the interval; see `forecasting.scores.inside`."""
    lower, upper = 1.0 - counts.at_least(count), 1.0 - counts.at_least(count + 1)
    if upper <= lower:
        return 0.0
    covered = min(upper, HIGH) - max(lower, LOW)
    return min(max(covered, 0.0) / (upper - lower), 1.0)
