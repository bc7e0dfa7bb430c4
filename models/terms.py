"""What the regression looks at: logarithms of features, and a few of their products."""

from math import log, log1p

import numpy as np
from numpy.typing import NDArray

from models.base import HALF_LIVES_S, Features, decayed_count
from models.snapshot import recall

LOGGED: tuple[str, ...] = (
    *(decayed_count(half_life_s) for half_life_s in HALF_LIVES_S),
    "arrivals",
    "gap_last_s",
    "gap_prev_s",
    "gap_share_15s",
    "gap_share_60s",
    "age_s",
    "input_tokens",
    f"parent_{decayed_count(60.0)}",
    f"global_{decayed_count(60.0)}",
    "sibling_repeat_share",
    "bursts_seen",
    "burst_size",
    "last_burst_size",
    "since_burst_start_s",
    "burst_interval_s",
)
"""Features whose log(1 + value) is a term.

Left out: `since_last_s`, which is always 0 where there is something to learn from (right after an
arrival); `depth_tokens`, the same for all samples; and the tenant's and the 300 s counts of others,
which changed the loss on no trace that we have.
"""

TERMS: tuple[str, ...] = (
    *LOGGED,
    "prior",
    "gap·gap",
    "gap·count",
    "count·count",
    "recent·age",
    "age·age",
)
"""Names of the terms in their order. The products bend what is straight in the logarithms: how the
rate changes with the age of a burst, and which gaps are pauses."""


PRIOR = TERMS.index("prior")

Vector = NDArray[np.float64]


def terms(x: Features, prior_mean: float) -> dict[str, float]:
    """Return the terms for features `x`, of which the prior expects `prior_mean` above 0."""
    named = dict(zip(TERMS, without_prior(x).tolist(), strict=True))
    named["prior"] = log(prior_mean)
    return named


def without_prior(x: Features) -> Vector:
    """Return the terms for features `x` in their order, with 0 for the prior; not to be changed."""
    return recall(x, _without_prior)


def _without_prior(x: Features) -> Vector:
    logs = {name: log1p(value) if (value := x[name]) > 0.0 else 0.0 for name in LOGGED}
    gap, count = logs["gap_last_s"], logs["count_hl_15s"]
    recent, age = logs["count_hl_1s"], logs["age_s"]
    logs["prior"] = 0.0
    logs["gap·gap"] = gap * gap
    logs["gap·count"] = gap * count
    logs["count·count"] = count * count
    logs["recent·age"] = recent * age
    logs["age·age"] = age * age
    return np.array([*logs.values()])
