"""What a prefix's earlier bursts say of the next one, once the last is over."""

from collections.abc import Sequence
from typing import NamedTuple

from forecasting.stats import BURST_SILENCE_S, PrefixStats
from models.counts import Counts

LEAST_CHANCE = 0.02
"""Probability of a burst below which it is not worth a word."""

BURST_SHAPE = 5.0
"""Shape of the size of a burst that does come: bursts of one job differ by half of their mean."""


class Return(NamedTuple):
    """Within one horizon: the probability that a burst begins, and its mean arrivals by then.

    `shape` is that of the negative binomial of its arrivals, where it does begin.
    """

    chance: float
    arrivals: float
    shape: float = BURST_SHAPE


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

    The mean is the sum, and the probability of none is that of neither: where a negative binomial
    with this mean gives less of it, the rest is that nothing comes at all. The shape is that of
    whichever of the two has more arrivals.

    >>> both = with_return(Counts(0.1), Return(chance=0.5, arrivals=20.0))
    >>> round(both.mean, 1), round(1.0 - both.at_least(1), 3)  # exp(-0.1) / 2
    (20.1, 0.452)
    """
    mean = count.mean + back.arrivals
    shape = back.shape if back.arrivals > count.mean else count.shape
    none = (1.0 - count.at_least(1)) * (1.0 - back.chance)
    if mean == 0.0 or 1.0 - Counts(mean, shape).at_least(1) >= none:
        return Counts(mean, shape)
    low, high = 0.0, none
    for _ in range(20):
        middle = (low + high) / 2.0
        if 1.0 - Counts(mean, shape, middle).at_least(1) < none:
            low = middle
        else:
            high = middle
    return Counts(mean, shape, low)
