"""Bursts that return: when the next one is due, from when those before began."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt
from statistics import fmean, median
from typing import NamedTuple

from scipy.special import stdtr

KEPT = 8
"""Latest bursts of a prefix that are remembered: a schedule may change."""

FEWEST_STARTS = 3
"""Bursts that it takes to see a rhythm: two intervals."""

MAX_MISSES = 3
"""Bursts in a row that may be missed: a schedule is given up when one more has not come."""

STOP_SHARE = 0.05
"""Probability, each time a burst is due, that it and all later ones never come."""

PRIOR_SPREAD, PRIOR_STARTS = 0.1, 4.0
"""Standard deviation of a start about its due time, in periods, before a prefix shows its own; and
how many starts that counts as."""

PRIOR_MISS_SHARE, PRIOR_DUE = 0.1, 5.0
"""Share of due bursts that do not come, to begin with; and how many due ones that counts as."""

LARGEST_SPREAD = 0.3
"""Starts that scatter by more than this share of the period have no rhythm."""

SHORTEST_PERIOD_S = 60.0
"""Within a minute, arrivals are one burst."""

LEAST_WEIGHT = 0.02
"""Least weight of the newest start in a family's spread and misses: about the last 50 count."""

REACH = 2.5
"""Scales of a start's distribution about its due time that hold nearly all of it."""


class Occurrence(NamedTuple):
    """A burst that is over: when it began, its arrivals, and seconds from the first to the last."""

    start_s: float
    size: int
    span_s: float


class Family:
    """What the recurring prefixes of one tenant have in common: how punctual they are.

    A prefix with two or three bursts says little of its own scatter; those before it do.

    Attributes
    ----------
    miss_share
        Of the bursts that were due before one came, and of that one, the share that did not come.
    """

    __slots__ = ("_due", "_starts", "_variance", "miss_share")

    def __init__(self) -> None:
        self._starts = PRIOR_STARTS
        self._due = PRIOR_DUE
        self._variance = PRIOR_SPREAD**2
        self.miss_share = PRIOR_MISS_SHARE

    @property
    def spread(self) -> float:
        """Standard deviation of a start about its due time, as a share of the period."""
        return sqrt(self._variance)

    def learn(self, expected: "Schedule", start_s: float) -> None:
        """Take in that the burst after `expected` was made began at `start_s`.

        A start that is off by more than `LARGEST_SPREAD` periods counts as off by that: it may
        belong to another schedule. One that is later than the schedule holds tells nothing.
        """
        k = max(1, round((start_s - expected.first_s) / expected.period_s) + 1)
        if k > len(expected.levers):
            return
        off = (start_s - expected.due_s(k)) / expected.period_s / expected.levers[k - 1]
        self._starts += 1.0
        weight = max(1.0 / self._starts, LEAST_WEIGHT)
        self._variance += weight * (min(off * off, LARGEST_SPREAD**2) - self._variance)
        for missed in [1.0] * (k - 1) + [0.0]:
            self._due += 1.0
            weight = max(1.0 / self._due, LEAST_WEIGHT)
            self.miss_share += weight * (missed - self.miss_share)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When bursts of a prefix are due after the one that began at `last_s`, and what they are like.

    The k-th is due at `first_s` + (k - 1) `period_s`, if it comes at all. Its start has a Student t
    distribution about that, of scale `spread_s` times a lever that grows with k, for the period is
    only estimated.

    Parameters
    ----------
    last_s, first_s, period_s
        When the last one began, when the next one is due, and the seconds between due times.
    spread_s
        Standard deviation of starts about the times they were due.
    levers
        Factor of the spread for the k-th next burst, k = 1 to `MAX_MISSES` + 1.
    freedom
        Degrees of freedom.
    miss_share
        Probability that a due burst does not come, though later ones will.
    size, span_s
        Mean arrivals of a burst, and mean seconds from its first to its last.
    """

    last_s: float
    first_s: float
    period_s: float
    spread_s: float
    levers: tuple[float, ...]
    freedom: float
    miss_share: float
    size: float
    span_s: float

    def due_s(self, k: int) -> float:
        """Return when the k-th next burst is due, k = 1, 2, ..."""
        return self.first_s + (k - 1) * self.period_s

    def opens_s(self, k: int) -> float:
        """Return from when on the k-th next burst may well begin."""
        return self.due_s(k) - REACH * self.spread_s * self.levers[k - 1]

    def closes_s(self, k: int) -> float:
        """Return by when the k-th next burst has most likely begun, or was missed."""
        return self.due_s(k) + REACH * self.spread_s * self.levers[k - 1]

    def chance(self, now_s: float, within_s: float) -> float:
        """Return the probability that a burst begins in (now_s, now_s + within_s].

        Known is that none has since the last one. With F_k the distribution function of the k-th
        start, and w_k = (1 - stop)^k miss^(k - 1) (1 - miss) the probability that it is the next to
        come, that is

            sum_k w_k (F_k(now + within) - F_k(now)) / (1 - sum_k w_k F_k(now))

        Each one that does not come makes it more likely that no more will.

        >>> job = Schedule(0.0, 600.0, 600.0, 10.0, (1.0, 1.5, 2.0, 2.5), 8.0, 0.1, 40.0, 10.0)
        >>> [round(job.chance(now_s, within_s=60.0), 3) for now_s in (300, 560, 700, 1160, 1760)]
        [0.0, 0.82, 0.0, 0.495, 0.096]
        """
        weight = (1.0 - STOP_SHARE) * (1.0 - self.miss_share)
        inside = passed = 0.0
        for k, lever in enumerate(self.levers, start=1):
            scale_s = self.spread_s * lever
            off_s = now_s - self.due_s(k)
            if off_s + within_s < -50.0 * scale_s:
                break
            before = float(stdtr(self.freedom, off_s / scale_s))
            by_then = float(stdtr(self.freedom, (off_s + within_s) / scale_s))
            inside += weight * (by_then - before)
            passed += weight * before
            weight *= (1.0 - STOP_SHARE) * self.miss_share
        return inside / (1.0 - passed)

    def arrivals(self, now_s: float, within_s: float) -> float:
        """Return the mean number of arrivals in (now_s, now_s + within_s] of a burst to come.

        A burst's arrivals are taken to be spread evenly over its span.
        """
        spread_s = min(self.span_s, within_s)
        whole = self.chance(now_s, within_s - spread_s)
        share = spread_s / self.span_s if self.span_s else 1.0
        return self.size * (share * 0.5 * (self.chance(now_s, within_s) - whole) + whole)


def schedule(past: Sequence[Occurrence], start_s: float, family: Family) -> Schedule | None:
    """Return the schedule of a prefix whose bursts so far are `past` and one begun at `start_s`.

    Due times are the straight line through the starts, by least squares over how many periods lie
    between them: a late start does not delay the next one, a missed one leaves a gap of two
    periods. Which period is tried out: the median and the least interval, and half of them; the
    likeliest is taken, a missed burst being as likely as in the family. The scatter is a mean of
    the family's and of the prefix's own, by their weight (Gelman et al., Bayesian Data Analysis,
    2013, section 14.2). None where there are fewer than
    `FEWEST_STARTS`, or no rhythm.

    >>> past = [Occurrence(600.0 * k, 40, 10.0) for k in (0, 1, 3)]
    >>> found = schedule(past, 2400.0, Family())
    >>> found.period_s, found.first_s, round(found.spread_s, 1), round(found.levers[0], 1)
    (600.0, 3000.0, 49.0, 1.5)
    """
    starts_s = [one.start_s for one in past] + [start_s]
    gaps_s = [late - early for early, late in pairwise(starts_s)]
    if len(starts_s) < FEWEST_STARTS:
        return None
    usual = {median(gaps_s), min(gaps_s)}
    periods_s = {gap_s / part for gap_s in usual for part in (1, 2)}
    fits = [_fit(starts_s, one, family) for one in periods_s if one >= SHORTEST_PERIOD_S]
    best = max(fits, key=lambda fit: fit.score, default=None)
    if best is None or best.spread_s > LARGEST_SPREAD * best.period_s:
        return None
    return Schedule(
        last_s=start_s,
        first_s=best.first_s,
        period_s=best.period_s,
        spread_s=best.spread_s,
        levers=best.levers,
        freedom=PRIOR_STARTS + len(starts_s) - 2.0,
        miss_share=family.miss_share,
        size=fmean(one.size for one in past),
        span_s=fmean(one.span_s for one in past),
    )


class _Fit(NamedTuple):
    """A line through starts: its period, the next due time, the scatter, and how likely it is."""

    period_s: float
    first_s: float
    spread_s: float
    levers: tuple[float, ...]
    score: float


def _fit(starts_s: Sequence[float], guess_s: float, family: Family) -> _Fit:
    index = [0.0]
    for early_s, late_s in pairwise(starts_s):
        index.append(index[-1] + max(1, round((late_s - early_s) / guess_s)))
    middle, middle_s = fmean(index), fmean(starts_s)
    squares = sum((one - middle) ** 2 for one in index)
    pairs = list(zip(index, starts_s, strict=True))
    period_s = sum((one - middle) * (at_s - middle_s) for one, at_s in pairs) / squares
    left = sum((at_s - middle_s - period_s * (one - middle)) ** 2 for one, at_s in pairs)
    starts = len(starts_s)
    prior = PRIOR_STARTS * (family.spread * period_s) ** 2
    spread_s = sqrt((prior + left) / (PRIOR_STARTS + starts - 2.0))
    levers = tuple(
        sqrt(1.0 + 1.0 / starts + (index[-1] + k - middle) ** 2 / squares)
        for k in range(1, MAX_MISSES + 2)
    )
    missed = index[-1] - (starts - 1)
    score = missed * log(family.miss_share) - (starts - 1) * log(spread_s)
    first_s = middle_s + period_s * (index[-1] + 1.0 - middle)
    return _Fit(period_s, first_s, spread_s, levers, score)
