"""The article's cache-aware router, which sees straight into the replicas' caches."""

from collections.abc import Sequence
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import ClusterView, Decision
from policies.fixed import FixedRule
from policies.ranking import first_by, ranked


class ArticleCacheAware(FixedRule):
    """The replica that holds most of the prompt in HBM or RAM, then the lightest, then any.

    If the highest load is above `balance_abs` and above `balance_rel` times the lowest, the
    lightest instead. The constants are the article's (github.com/jwlaboratory/bite-the-bullet).
    """

    def __init__(self, rng: Random, *, balance_abs: int = 64, balance_rel: float = 1.5) -> None:
        self._rng = rng
        self._balance_abs = balance_abs
        self._balance_rel = balance_rel

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return where `arrival` goes."""
        loads = cluster.loads()
        highest = max(loads)
        if highest > self._balance_abs and highest > self._balance_rel * min(loads):
            first = first_by(loads, self._rng)
            return Decision(ranked(cluster.replicas, loads, first), reason="out of balance")
        stored = cluster.stored_blocks(arrival.chain)
        keys = [(-blocks, load) for blocks, load in zip(stored, loads, strict=True)]
        first = first_by(keys, self._rng)
        return Decision(ranked(cluster.replicas, keys, first), reason="holds most of the prompt")
