"""What is left to expect of a prefix when nothing has come since its last arrival."""

from collections.abc import Sequence
from math import inf, log, sqrt

from models.counts import Counts

Told = Sequence[tuple[float, Counts]]
"""Horizons in seconds, rising, each with what was forecast at the last arrival."""

WEIGHT = 0.7
"""Of the forecast that takes arrivals to come when the horizons say. Chosen on generated traffic
and kv-cache-tester v8 (`benchmarks/quiet_forecasts.py`); 0.5 does nearly as well."""


def after_silence(told: Told, silent_s: float) -> list[Counts]:
    """Return what is left to expect within each horizon after `silent_s` without an arrival.

    A negative binomial is a Poisson count whose rate has a gamma distribution, so by Bayes' rule
    silence where E arrivals were expected divides the mean by 1 + E / shape (Gelman et al.,
    Bayesian Data Analysis, 2013, section 2.6). How many were, depends on when they were to come:

    - As the horizons say: M(t) by t, straight from one to the next. Then M(silent) are over, and
      M(silent + h) - M(silent) are left within h. For that the root of the divisor was found to do
      better: arrivals come in clumps, and a pause says less than Bayes' rule makes of it.
    - Evenly, whatever the time: within h the mean stays, over 1 + mean silent / h / shape.

    The answer is the mean of both by weight, `WEIGHT` on the first. After the last horizon, H, the
    rate in M is taken to fall as H / t from what it was at the end, as the rate of aftershocks does
    (Omori's law; Utsu, Ogata and Matsu'ura 1995).

    >>> told = [(1.0, Counts(8.0, 2.0)), (5.0, Counts(10.0, 2.0))]  # M(2) = 8.5, M(3) = 9
    >>> [round(count.mean, 3) for count in after_silence(told, 2.0)]
    [0.419, 1.715]

    References
    ----------
    Utsu, T., Ogata, Y. and Matsu'ura, R. S. (1995). The centenary of the Omori formula for a decay
    law of aftershock activity. Journal of Physics of the Earth 43(1).
    """
    before = _expected(told, silent_s)
    left = []
    for horizon_s, count in told:
        shape = count.shape if count.shape > 0.0 else inf  # of fewer than Poisson's, says nothing
        coming = max(_expected(told, silent_s + horizon_s) - before, 0.0)
        coming /= sqrt(1.0 + before / shape)
        even = count.mean / (1.0 + count.mean * silent_s / horizon_s / shape)
        left.append(Counts(WEIGHT * coming + (1.0 - WEIGHT) * even, shape))
    return left


def _expected(told: Told, by_s: float) -> float:
    """Return M(by_s), the arrivals that were expected by then."""
    early_s = early = rate = 0.0
    for late_s, count in told:
        rate = max(count.mean - early, 0.0) / (late_s - early_s)
        if by_s <= late_s:
            return early + rate * (by_s - early_s)
        early_s, early = late_s, max(count.mean, early)
    return early + rate * early_s * log(by_s / early_s)
