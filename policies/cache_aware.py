"""SGLang's default: follow the prefix, unless the load is out of balance."""

from collections.abc import Sequence
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import ClusterView, Decision
from policies.fixed import FixedRule
from policies.ranking import first_by, ranked
from policies.routed import RoutedPrefixes


class CacheAware(FixedRule):
    """The `cache_aware` policy of sglang-router 0.3.2, with its defaults.

    If the highest load is more than `balance_abs` above the lowest and more than `balance_rel`
    times it, the lightest replica. Else the replica that was sent the longest part of this prompt,
    if that is more than `cache_threshold` of it; else the lightest. It learns a prefix when it
    routes it, and never hears what a replica evicts. Where several replicas were sent an equally
    long part it takes the lightest of them; the real one takes any.
    """

    def __init__(
        self,
        rng: Random,
        *,
        cache_threshold: float = 0.3,
        balance_abs: int = 64,
        balance_rel: float = 1.5,
    ) -> None:
        self._rng = rng
        self._cache_threshold = cache_threshold
        self._balance_abs = balance_abs
        self._balance_rel = balance_rel
        self._routed = RoutedPrefixes()

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return where `arrival` goes; it is remembered as sent there."""
        names, loads, chain = cluster.replicas, cluster.loads(), arrival.chain
        low, high = min(loads), max(loads)
        first, reason = -1, "lightest: too little of the prompt is known"
        if high - low > self._balance_abs and high > self._balance_rel * low:
            reason = "lightest: out of balance"
        elif chain:
            blocks, holders = self._routed.longest(chain, names)
            if blocks > self._cache_threshold * len(chain):
                first = holders[first_by([loads[i] for i in holders], self._rng)]
                reason = "sent the longest part of the prompt before"
        if first < 0:
            first = first_by(loads, self._rng)
        self._routed.add(chain, names[first])
        return Decision(ranked(names, loads, first), reason=reason)

    def note(self, arrival: Arrival, name: str) -> None:
        """Remember that `arrival` was sent to the replica `name` by somebody else."""
        self._routed.add(arrival.chain, name)
