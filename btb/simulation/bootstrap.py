"""How sure a difference between two policies is, from the requests that both of them served.

Requests of one burst share a queue, so they are no independent draws. What is resampled is
therefore not a request but a cluster of them: the requests of one window that arrived within the
same block of `BLOCK_S` seconds. Both policies are taken with the same clusters each time, which
keeps the comparison paired.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from btb.intervals import RESAMPLES, Interval, draw_clusters, percentile_interval
from btb.simulation.result import Floats, Ints

BLOCK_S = 60.0
"""Width of a cluster in seconds: the span of one burst in the article."""

P95 = 0.95


@dataclass(frozen=True, slots=True)
class Paired:
    """A policy against a baseline on the same requests; a change of -0.5 is "half as long".

    Intervals hold the true value with probability `btb.intervals.CONFIDENCE`; they are `(nan, nan)`
    where there is only one cluster, which says nothing of how much clusters differ.
    """

    mean_diff_s: float
    mean_diff_ci_s: Interval
    mean_change: float
    mean_change_ci: Interval
    p95_change: float
    p95_change_ci: Interval
    clusters: int


def quantile(ordered: Floats, share: float) -> float:
    """Return `ordered[int(share * n)]`, the article's way to read a percentile: no interpolation.

    >>> quantile(np.arange(100.0), 0.95)
    95.0
    """
    return float(ordered[int(share * len(ordered))])


def clusters_of(arrived_s: Sequence[Floats], block_s: float = BLOCK_S) -> Ints:
    """Return a cluster number for each request of all windows, 0 to the number of clusters - 1.

    >>> clusters_of([np.array([0.0, 59.0, 61.0]), np.array([0.0])]).tolist()
    [0, 0, 1, 2]
    """
    window = np.repeat(np.arange(len(arrived_s)), [len(times_s) for times_s in arrived_s])
    block = np.floor(np.concatenate(arrived_s) / block_s).astype(np.int64)
    _, number = np.unique(np.stack([window, block]), axis=1, return_inverse=True)
    return np.asarray(number, dtype=np.int64).ravel()


def compare_pairs(
    baseline_s: Floats, policy_s: Floats, cluster: Ints, *, seed: int, resamples: int = RESAMPLES
) -> Paired:
    """Return how `policy_s` differs from `baseline_s`, request by request, and how sure that is.

    Clusters are drawn with replacement, as many as there are, `resamples` times; the interval is
    that between the 2.5 % and the 97.5 % quantile of what the draws give (percentile interval).

    Parameters
    ----------
    baseline_s, policy_s
        TTFT of the same requests under both policies, all above 0, shape (n,).
    cluster
        Each request's cluster, from `clusters_of`, shape (n,).

    References
    ----------
    Efron, B. and Tibshirani, R. (1993). An Introduction to the Bootstrap. Chapman & Hall.
    Chapter 13 for the percentile interval, section 8.6 for resampling blocks.
    Politis, D. and Romano, J. (1994). The stationary bootstrap. JASA 89(428), for why blocks.

    Examples
    --------
    >>> base_s, cluster = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1])
    >>> found = compare_pairs(base_s, base_s / 2, cluster, seed=1)
    >>> found.mean_diff_s, found.mean_change, found.mean_change_ci
    (-1.25, -0.5, (-0.5, -0.5))
    """
    count = int(cluster.max()) + 1
    weights = draw_clusters(count, seed=seed, resamples=resamples)
    requests = np.bincount(cluster)
    base_sum = np.bincount(cluster, weights=baseline_s)
    diff_sum = np.bincount(cluster, weights=policy_s - baseline_s)
    drawn_diff_s = weights @ diff_sum
    base_p95 = quantile(np.sort(baseline_s), P95)
    policy_p95 = quantile(np.sort(policy_s), P95)
    drawn_p95 = _quantiles(policy_s, cluster, weights) / _quantiles(baseline_s, cluster, weights)
    return Paired(
        mean_diff_s=float(diff_sum.sum() / len(baseline_s)),
        mean_diff_ci_s=percentile_interval(drawn_diff_s / (weights @ requests), count),
        mean_change=float(diff_sum.sum() / base_sum.sum()),
        mean_change_ci=percentile_interval(drawn_diff_s / (weights @ base_sum), count),
        p95_change=policy_p95 / base_p95 - 1.0,
        p95_change_ci=percentile_interval(drawn_p95 - 1.0, count),
        clusters=count,
    )


def _quantiles(values: Floats, cluster: Ints, weights: NDArray[np.int64]) -> Floats:
    """Return the 95th percentile of each draw; a draw takes each request `weights[cluster]` times.

    Counts requests up to each value, so nothing is copied or sorted per draw.
    """
    order = np.argsort(values, kind="stable")
    ordered, owner = values[order], cluster[order]
    found = np.empty(len(weights))
    for draw, weight in enumerate(weights):
        upto = np.cumsum(weight[owner])
        found[draw] = ordered[np.searchsorted(upto, int(P95 * int(upto[-1])), side="right")]
    return found
