"""A distribution of counts: what a learner answers, instead of a bare number."""

from dataclasses import dataclass
from math import inf, isfinite

from scipy.special import betainc, gammainc


@dataclass(frozen=True, slots=True)
class Counts:
    """Negative binomial with `mean` and `shape`; Poisson where `shape` is infinite.

    The variance is mean + mean² / shape, so a small shape says "either nothing or a lot".

    Raises
    ------
    ValueError
        If `mean` is negative or not finite, or `shape` is not positive.

    Examples
    --------
    >>> Counts(mean=2.0).at_least(1)  # 1 - exp(-2)
    0.8646647167633873
    >>> Counts(mean=2.0, shape=1.0).at_least(1)  # geometric: 1 - 1/3
    0.6666666666666666
    >>> Counts(mean=2.0).quantile(0.9)
    4
    """

    mean: float
    shape: float = inf

    def __post_init__(self) -> None:
        if not (isfinite(self.mean) and self.mean >= 0.0):
            raise ValueError(f"mean must be finite and not negative, got {self.mean!r}")
        if not self.shape > 0.0:
            raise ValueError(f"shape must be positive, got {self.shape!r}")

    @property
    def variance(self) -> float:
        """Variance of the count."""
        return self.mean + self.mean * self.mean / self.shape

    def at_least(self, count: int) -> float:
        """Return the probability of `count` or more arrivals."""
        if count <= 0:
            return 1.0
        if self.mean == 0.0:
            return 0.0
        if self.shape == inf:
            return float(gammainc(count, self.mean))
        miss = self.mean / (self.mean + self.shape)
        return float(betainc(count, self.shape, miss))

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
