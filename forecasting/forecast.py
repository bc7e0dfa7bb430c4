"""What the forecaster says about one prefix at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.counts import Counts


@dataclass(frozen=True, slots=True)
class Prefix:
    """A node of the prefix tree: what some requests share.

    `key` is the hash of its last block (so the whole prefix follows from it), `blocks` and `tokens`
    its depth from the root.
    """

    key: int
    blocks: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many more requests for `prefix` will come, by horizon, as seen at `at_s`.

    `counts` maps a horizon in seconds to the distribution of the number of arrivals in
    (at_s, at_s + horizon] and, of those at `at_s` itself, of the later in order. `seen` is how many
    have come so far. `returns` maps the same horizons to the probability that a burst begins within
    them, where an earlier one is over and there is a rhythm to go by; else it is empty.
    """

    prefix: Prefix
    at_s: float
    seen: int
    counts: Mapping[float, Counts]
    returns: Mapping[float, float] = field(default_factory=dict)

    def mean(self, horizon_s: float) -> float:
        """Return the expected number of arrivals within `horizon_s`, one of the horizons kept."""
        return self.counts[horizon_s].mean
