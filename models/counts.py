"""A distribution of counts: what a learner answers, instead of a bare number."""

from dataclasses import dataclass
from math import inf, isfinite

from scipy.special import betainc, gammainc


@dataclass(frozen=True, slots=True)
class Counts:
    """Negative binomial, or Poisson where `shape` is infinite, with more zeros where `idle` says.

    With probability `idle` nothing comes, whatever the rest says: a job may not return. Otherwise
    the count has the mean m = mean / (1 - idle) and the variance m + m² / shape, so a small shape
    says "a few or a lot". `mean` is that of all.

    Raises
    ------
    ValueError
        If `mean` is negative or not finite, `shape` is not positive, or `idle` is not below 1.

    Examples
    --------
    >>> Counts(mean=2.0).at_least(1)  # 1 - exp(-2)
    0.8646647167633873
    >>> Counts(mean=2.0, shape=1.0).at_least(1)  # geometric: 1 - 1/3
    0.6666666666666666
    >>> Counts(mean=2.0).quantile(0.9)
    4
    >>> round(Counts(mean=2.0, idle=0.5).at_least(1), 4)  # half of 1 - exp(-4)
    0.4908
    """

    mean: float
    shape: float = inf
    idle: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.mean) and self.mean >= 0.0):
            raise ValueError(f"mean must be finite and not negative, got {self.mean!r}")
        if not self.shape > 0.0:
            raise ValueError(f"shape must be positive, got {self.shape!r}")
        if not 0.0 <= self.idle < 1.0:
            raise ValueError(f"idle must be at least 0 and below 1, got {self.idle!r}")

    @property
    def variance(self) -> float:
        """Variance of the count."""
        busy = self.mean / (1.0 - self.idle)
        return self.mean * (1.0 + busy / self.shape + self.idle * busy)

    def at_least(self, count: int) -> float:
        """Return the probability of `count` or more arrivals."""
        if count <= 0:
            return 1.0
        if self.mean == 0.0:
            return 0.0
        share = 1.0 - self.idle
        busy = self.mean / share
        if self.shape == inf:
            return share * float(gammainc(count, busy))
        return share * float(betainc(count, self.shape, busy / (busy + self.shape)))

    def quantile(self, share: float) -> int:
        """Return the smallest count that is not passed with probability `share` or more."""
        high = 1
        while 1.0 - self.at_least(high) < share:
            high *= 2
        low = 0
        while low < high:
            middle = (low + high) // 2
            if 1.0 - self.at_least(middle + 1) >= share:
                high = middle
            else:
                low = middle + 1
        return low
