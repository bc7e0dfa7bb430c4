"""How sure a figure is that was added up over clusters of draws which are not independent.

Requests of one burst share a queue, and labels of one burst say much the same. What is resampled is
therefore not one of them but a whole cluster, such as all of one minute (Efron and Tibshirani 1993,
section 8.6; Politis and Romano, The stationary bootstrap, JASA 1994).
"""

from math import nan

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
"""Draws of an interval; 1,000 or more for 95 % ones (Efron & Tibshirani 1993, section 14.3)."""

CONFIDENCE = 0.95

Interval = tuple[float, float]


def draw_clusters(clusters: int, *, seed: int, resamples: int = RESAMPLES) -> NDArray[np.int64]:
    """Return how often each cluster is taken in each draw of `clusters` with replacement.

    Shape (resamples, clusters); each row adds up to `clusters`.
    """
    rng = np.random.default_rng(seed)
    return rng.multinomial(clusters, [1 / clusters] * clusters, size=resamples)


def percentile_interval(drawn: NDArray[np.float64], clusters: int) -> Interval:
    """Return the middle `CONFIDENCE` of `drawn` (Efron and Tibshirani 1993, chapter 13).

    `(nan, nan)` where there is only one cluster, which says nothing of how much clusters differ.

    >>> [round(end, 6) for end in percentile_interval(np.arange(0.0, 41.0), clusters=2)]
    [1.0, 39.0]
    """
    if clusters < 2:
        return nan, nan
    tail = (1.0 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return float(low), float(high)
