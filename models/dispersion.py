"""How far counts scatter about their forecast: the shape of their distribution, learnt online."""

from bisect import bisect_right
from math import ceil, inf
from typing import Self

from models.state import State, check_version, read_numbers

LEVELS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Means between which the scatter is learnt separately: bursts scatter unlike lone requests."""

FORGET = 1.0 / 2_000.0
"""Weight of the newest label in each level's sums, at least."""

PRIOR_EXCESS = 0.5
"""1/shape before anything is known, at the weight of one label of a large mean."""

MIN_SHAPE, MAX_SHAPE = 0.01, 1_000.0
"""Shapes closer to zero are pulled in; beyond, of either sign, they are infinite (Poisson)."""


class Dispersion:
    """Matches the variance of a distribution of counts to the squared errors of forecasts.

    The variance of a count with mean m and shape r is m + m²/r, with a negative r where counts
    scatter less than Poisson's do (`models.counts`), so

        1/r = Σ w ((y - m)² - m) / Σ w m²,    w = m / (1 + m)³

    over labels y, each level of m by itself and old labels slowly forgotten. This is the moment
    estimator of Breslow (1984) made recursive; w is about m² over the variance of (y - m)² - m,
    which grows from m to something like m⁴. So no single large burst decides; and where next to
    nothing comes, labels say next to nothing of r, and the prior holds.

    Examples
    --------
    Counts that are either 0 or 20 scatter far more than Poisson counts of mean 10 would:

    >>> scatter = Dispersion()
    >>> for k in range(1000):
    ...     scatter.learn(mean=10.0, count=20 * (k % 2))
    >>> round(scatter.shape(10.0), 1)
    1.1

    References
    ----------
    Breslow, N. (1984). Extra-Poisson variation in log-linear models. Applied Statistics 33(1).
    """

    __slots__ = ("_excess", "_weight")

    def __init__(self) -> None:
        self._excess = [PRIOR_EXCESS] * (len(LEVELS) + 1)
        self._weight = [1.0] * (len(LEVELS) + 1)

    def shape(self, mean: float) -> float:
        """Return the shape for a forecast of `mean`; infinite where the scatter is Poisson's."""
        level = bisect_right(LEVELS, mean)
        weight, excess = self._weight[level], self._excess[level]
        if abs(excess) * MAX_SHAPE <= weight:
            return inf
        if excess < 0.0:
            return min(weight / excess, -max(1.0, ceil(mean)))
        return max(weight / excess, MIN_SHAPE)

    def learn(self, mean: float, count: int) -> None:
        """Take in that `count` came where `mean` was forecast."""
        level = bisect_right(LEVELS, mean)
        error = count - mean
        share = mean / (1.0 + mean)
        keep, weight = 1.0 - FORGET * share, share / (1.0 + mean) ** 2
        self._excess[level] = keep * self._excess[level] + weight * (error * error - mean)
        self._weight[level] = keep * self._weight[level] + weight * mean * mean

    def to_state(self) -> State:
        """Return the sums as plain JSON values."""
        return {"version": 1, "excess": list(self._excess), "weight": list(self._weight)}

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return what `to_state` described.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        check_version(state, 1)
        dispersion = cls()
        dispersion._excess = read_numbers(state, "excess", len(LEVELS) + 1)
        dispersion._weight = read_numbers(state, "weight", len(LEVELS) + 1, low=0.0)
        return dispersion
