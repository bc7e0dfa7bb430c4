"""Self-exciting arrivals: each makes more of them likely for a while."""

from operator import mul, truediv
from typing import Self

from models.base import HALF_LIVES_S, Features, decayed_count
from models.counts import Counts
from models.dispersion import Dispersion
from models.snapshot import recall
from models.state import State, check_version, read_number, read_numbers, read_state

PRIOR_PER_MINUTE = 0.005
"""Background arrivals per minute and prefix before anything is known."""

PRIOR_OFFSPRING = 0.2
"""Arrivals that one brings about before anything is known, over all kernels."""

PRIOR_WEIGHT = 3.0
"""Claimed arrivals that the prior counts as."""

STEP_OFFSET, STEP_POWER, MIN_STEP = 20.0, 0.7, 1.0 / 5_000.0
"""Step size (20 + n)^-0.7 after n arrivals, then constant, so that it never stops learning."""

MIN_COEFFICIENT = 1e-6
"""A coefficient at zero would stay there, for the updates multiply."""

MAX_COUNT = 1e6
"""Larger decayed counts are taken as this."""

MAX_MEAN = 1e6
"""No forecast is larger."""

_COUNTS = tuple(map(decayed_count, HALF_LIVES_S))


class Hawkes:
    """Hawkes process with a sum of exponential kernels, fitted by online EM.

    The rate of a prefix is mu + sum_k a_k b_k C_k(t), where C_k is its arrivals so far, each
    decayed at rate b_k (Hawkes 1971). Leaving out what arrivals within the horizon h bring about
    among themselves, the expected count in the next h seconds is

        mean = mu h + sum_k a_k (1 - exp(-b_k h)) C_k(t) = sum_k theta_k z_k

    so decayed counts are all there is to know of the past; and as the coefficients are learnt for
    this horizon from what came, they take in what was left out. All are at least zero, and the
    b_k are those of `HALF_LIVES_S`.

    EM shares each of the y arrivals that came among the terms, theta_k z_k / mean to each, and
    sets theta_k to the arrivals given to a term over what it claimed. Done online both are decayed
    sums (Cappé and Moulines 2009), with steps that shrink with the arrivals seen, not with the
    labels: where one label in two hundred is above zero, little is learnt from each.

    Parameters
    ----------
    horizon_s
        Seconds to look ahead.

    Raises
    ------
    ValueError
        If `horizon_s` is not positive.

    Examples
    --------
    >>> x = {f"count_hl_{half_life}s": 2.0 for half_life in (1, 5, 15, 60, 300, 1800)}
    >>> model = Hawkes(horizon_s=15.0)
    >>> for _ in range(500):
    ...     model.learn_one(x, 3)
    >>> round(model.predict_one(x).mean, 1)
    3.0

    References
    ----------
    Hawkes, A. G. (1971). Spectra of some self-exciting and mutually exciting point processes.
    Biometrika 58(1).

    Cappé, O. and Moulines, E. (2009). On-line expectation-maximization algorithm for latent data
    models. Journal of the Royal Statistical Society B 71(3).
    """

    def __init__(self, horizon_s: float) -> None:
        if not horizon_s > 0.0:
            raise ValueError(f"horizon_s must be positive, got {horizon_s!r}")
        self._horizon_s = horizon_s
        self._shares = [1.0 - 2.0 ** (-horizon_s / half_life_s) for half_life_s in HALF_LIVES_S]
        kernels = len(self._shares)
        self._came = [PRIOR_WEIGHT * PRIOR_PER_MINUTE]
        self._came += [PRIOR_WEIGHT * PRIOR_OFFSPRING / kernels] * kernels
        self._claimed = [PRIOR_WEIGHT] * (kernels + 1)
        self._settle()
        self._seen = 0.0
        self._dispersion = Dispersion()

    def mean(self, x: Features) -> float:
        """Return the expected number of arrivals within the horizon, above zero."""
        mean: float = sum(map(mul, self._slopes, recall(x, _counts)), self._background)
        return min(mean, MAX_MEAN)

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
        news = min(mean, 1.0)
        self._seen += news
        keep = 1.0 - news * max((STEP_OFFSET + self._seen) ** -STEP_POWER, MIN_STEP)
        each = count / mean
        terms = [self._horizon_s / 60.0, *map(mul, self._shares, recall(x, _counts))]
        shares = map(mul, self._theta, terms)
        self._came = [
            keep * came + each * share for came, share in zip(self._came, shares, strict=True)
        ]
        self._claimed = [
            keep * claimed + term for claimed, term in zip(self._claimed, terms, strict=True)
        ]
        self._settle()
        return mean

    def to_state(self) -> State:
        """Return all that was learnt as plain JSON values."""
        return {
            "version": 1,
            "horizon_s": self._horizon_s,
            "came": list(self._came),
            "claimed": list(self._claimed),
            "seen": self._seen,
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
        model = cls(read_number(state, "horizon_s"))
        terms = len(model._came)
        model._came = read_numbers(state, "came", terms, low=0.0)
        model._claimed = read_numbers(state, "claimed", terms, low=1e-300)
        model._seen = read_number(state, "seen", low=0.0)
        model._settle()
        model._dispersion = Dispersion.from_state(read_state(state, "dispersion"))
        return model

    def _settle(self) -> None:
        """Work out theta, and from it what is expected without a count, and for each one."""
        parts = map(truediv, self._came, self._claimed)
        self._theta = [max(part, MIN_COEFFICIENT) for part in parts]
        self._background = self._theta[0] * self._horizon_s / 60.0
        self._slopes = [*map(mul, self._theta[1:], self._shares)]


def _counts(x: Features) -> list[float]:
    """Return the decayed counts, in the order of `HALF_LIVES_S`."""
    return [min(max(x[name], 0.0), MAX_COUNT) for name in _COUNTS]
