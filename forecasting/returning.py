"""What a prefix's earlier bursts say of the next one, once the last is over."""

from collections.abc import Sequence
from math import exp, inf, log
from typing import NamedTuple

from forecasting.stats import BURST_SILENCE_S, PrefixStats
from models.counts import Counts

LEAST_CHANCE = 0.02
"""Probability of a burst below which it is not worth a word."""

LOW, HIGH = 1e-3, 1e3
"""Shapes between which the one of a mixture is looked for."""


class Return(NamedTuple):
    """Within one horizon: the probability that a burst begins, and its mean arrivals by then."""

    chance: float
    arrivals: float


def returns(stats: PrefixStats, now_s: float, horizons: Sequence[float]) -> list[Return]:
    """Return what is to be expected of the next burst, for each of `horizons` in seconds.

    Empty while a burst may still be under way, and where there is no rhythm.
    """
    schedule = stats.schedule
    if schedule is None or now_s - stats.last_s <= BURST_SILENCE_S:
        return []
    return [
        Return(schedule.chance(now_s, within_s), schedule.arrivals(now_s, within_s))
        for within_s in horizons
    ]


def with_return(count: Counts, back: Return) -> Counts:
    """Return `count` with the arrivals of a burst added that may begin.

    The mean is the sum, and the shape is such that the probability of none is that of neither. The
    sum is no negative binomial: for a burst that is likely and large, its spread is too wide.

    >>> both = with_return(Counts(0.1), Return(chance=0.5, arrivals=20.0))
    >>> round(both.mean, 1), round(1.0 - both.at_least(1), 3)  # exp(-0.1) / 2
    (20.1, 0.452)
    """
    mean = count.mean + back.arrivals
    none = (1.0 - count.at_least(1)) * (1.0 - back.chance)
    if none <= exp(-mean):
        return Counts(mean)
    low, high = log(LOW), log(HIGH)
    for _ in range(20):
        middle = (low + high) / 2.0
        shape = exp(middle)
        if -shape * log(1.0 + mean / shape) > log(none):
            low = middle
        else:
            high = middle
    return Counts(mean, exp(high) if high < log(HIGH) else inf)
