"""The published prototype: a prefix that comes twice in a second is copied to four replicas."""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from policies.base import ClusterView, Copy, Decision, Policy
from policies.cache_aware import CacheAware
from policies.fixed import FixedRule
from policies.ranking import first_by, ranked

MAX_PREFIXES = 100_000
"""Prefixes whose recent arrivals are kept; the longest unseen is forgotten past this."""


class EarlyRdma(FixedRule):
    """If one `prefix_blocks`-block prefix arrives `threshold` times in `window_s`, warm `copies`.

    The article's X, Y, Z and M. While a prefix is that hot it is copied to the least busy replicas
    that don't hold it until `copies` do, and its requests go to the lightest replica that holds
    it. All others go where the policy that `fallback` makes says.
    """

    def __init__(
        self,
        rng: Random,
        *,
        fallback: Callable[[Random], Policy] = CacheAware,
        threshold: int = 2,
        prefix_blocks: int = 256,
        window_s: float = 1.0,
        copies: int = 4,
    ) -> None:
        self._fallback = fallback(rng)
        self._rng = rng
        self._threshold = threshold
        self._prefix_blocks = prefix_blocks
        self._window_s = window_s
        self._copies = copies
        self._seen_s: OrderedDict[int, deque[float]] = OrderedDict()

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return where `arrival` goes, and the copies that its prefix is due."""
        if len(arrival.chain) < self._prefix_blocks or not self._is_hot(arrival, now_s):
            return self._fallback.decide(arrival, forecasts, cluster, now_s)
        chain = arrival.chain[: self._prefix_blocks]
        loads = cluster.loads()
        resident = cluster.resident_blocks(chain)
        warm = [index for index, blocks in enumerate(resident) if blocks >= len(chain)]
        if not warm:
            return self._fallback.decide(arrival, forecasts, cluster, now_s)
        copies = self._copies_due(arrival, chain, cluster, loads, warm)
        first = warm[first_by([loads[index] for index in warm], self._rng)]
        return Decision(ranked(cluster.replicas, loads, first), copies, "lightest warm replica")

    def _is_hot(self, arrival: Arrival, now_s: float) -> bool:
        key = arrival.chain[self._prefix_blocks - 1]
        seen_s = self._seen_s.get(key)
        if seen_s is None:
            seen_s = self._seen_s[key] = deque()
            if len(self._seen_s) > MAX_PREFIXES:
                self._seen_s.popitem(last=False)
        else:
            self._seen_s.move_to_end(key)
        seen_s.append(now_s)
        while seen_s[0] < now_s - self._window_s:
            seen_s.popleft()
        return len(seen_s) >= self._threshold

    def _copies_due(
        self,
        arrival: Arrival,
        chain: tuple[int, ...],
        cluster: ClusterView,
        loads: Sequence[int],
        warm: list[int],
    ) -> tuple[Copy, ...]:
        if len(warm) >= self._copies:
            return ()
        names = cluster.replicas
        pending = cluster.pending(chain)
        coming = [i for i in range(len(names)) if i not in warm and pending[i][0] >= len(chain)]
        due = self._copies - len(warm) - len(coming)
        if due <= 0:
            return ()
        cold = [i for i in range(len(names)) if i not in warm and i not in coming]
        source = min(warm, key=loads.__getitem__)
        prefix = Prefix(chain[-1], len(chain), len(chain) * arrival.block_tokens)
        return tuple(
            Copy(
                prefix=prefix,
                chain=chain,
                source=names[source],
                target=names[target],
                size_bytes=len(chain) * cluster.block_bytes,
                deadline_s=float("inf"),
                value_s=0.0,
                cost_s=0.0,
                reason=f"{self._threshold} arrivals in {self._window_s:g} s",
            )
            for target in sorted(cold, key=loads.__getitem__)[:due]
        )
