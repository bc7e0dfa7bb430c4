"""Draws that workload families share. All chance comes from the generator that is passed in."""

from collections.abc import Callable, Iterator
from math import log, pi, sin
from random import Random

DAY_S = 86_400.0


def spread(start_s: float, span_s: float, count: int, rng: Random | None) -> list[float]:
    """Return `count` times in order from `start_s` to `start_s + span_s`.

    With `rng` they are those of a Poisson process given that it had `count` arrivals, which are
    independent and uniform (Cox and Lewis 1966, chapter 2). Without it they are even:

    >>> spread(10.0, 4.0, 3, None)
    [10.0, 12.0, 14.0]
    """
    if rng is None:
        return [start_s + span_s * k / max(count - 1, 1) for k in range(count)]
    return sorted(start_s + span_s * rng.random() for _ in range(count))


def poisson(rate_rps: float, start_s: float, end_s: float, rng: Random) -> Iterator[float]:
    """Yield the times of a Poisson process of `rate_rps` from `start_s` until `end_s`."""
    if rate_rps <= 0.0:
        return
    at_s = start_s + rng.expovariate(rate_rps)
    while at_s < end_s:
        yield at_s
        at_s += rng.expovariate(rate_rps)


def thinned(
    rate_rps: Callable[[float], float], most_rps: float, start_s: float, end_s: float, rng: Random
) -> Iterator[float]:
    """Yield the times of a Poisson process whose rate varies and is never above `most_rps`.

    Thinning, after Lewis and Shedler (1979).
    """
    for at_s in poisson(most_rps, start_s, end_s, rng):
        if rng.random() * most_rps < rate_rps(at_s):
            yield at_s


def around(median: float, sigma: float, rng: Random) -> float:
    """Return a lognormal draw; `sigma` is the standard deviation of its logarithm."""
    return rng.lognormvariate(log(median), sigma)


def tokens_around(median: float, sigma: float, rng: Random) -> int:
    """Return a lognormal number of tokens, at least 1."""
    return max(1, round(around(median, sigma, rng)))


def turns(mean: float, rng: Random) -> int:
    """Return a geometric number of turns, at least 1, with mean `mean`."""
    count = 1
    while rng.random() * mean > 1.0:
        count += 1
    return count


def pick(weights: list[float], rng: Random) -> int:
    """Return an index, with probability in proportion to its weight."""
    return rng.choices(range(len(weights)), weights)[0]


def zipf(count: int) -> list[float]:
    """Return the weights 1, 1/2, 1/3, ...: a few prefixes take most of the traffic.

    >>> zipf(2)
    [1.0, 0.5]
    """
    return [1.0 / rank for rank in range(1, count + 1)]


def daily(at_s: float, swing: float) -> float:
    """Return the factor of a rate at a time of day: 1 + `swing` at 6 h, 1 - `swing` at 18 h.

    >>> daily(21_600.0, 0.5)
    1.5
    """
    return 1.0 + swing * sin(2.0 * pi * at_s / DAY_S)
