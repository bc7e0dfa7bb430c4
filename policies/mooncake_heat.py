"""After Mooncake Store: what is read often gets a second copy on another host."""

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from policies.base import Chain, ClusterView, Copy, Decision
from policies.cache_aware import CacheAware
from policies.fixed import FixedRule
from policies.ranking import first_by, ranked

MAX_READS = 20_000
"""Requests of the latest `window_s` that are counted; the oldest is left out past this."""

MAX_COPIED = 100_000
"""Prefixes whose latest copy is remembered; the oldest is forgotten past this."""


class MooncakeHeat(FixedRule):
    """If a block is asked for `rate_rps` times a second over `window_s`, it is held twice.

    The rule of Mooncake Store's dynamic replication (kvcache-ai/Mooncake pull request 3389) with
    its rate and window: at most `copies` in all, each on another host, and after one was made a
    rest of `rest_s` before the next, however soon it is evicted. A prefix is as hot as its deepest
    block. Its requests go to the lightest replica that holds it, all others where `cache_aware`
    says.

    Mooncake keeps both copies in host memory, from where whoever needs it loads it. Here the copy
    is made in the other replica's HBM: it costs room there, and spares each request the load,
    which on an H100 takes twice as long as from a peer's HBM at most. Mooncake doesn't state its
    rest; `window_s` is ours.
    """

    def __init__(
        self,
        rng: Random,
        *,
        rate_rps: float = 0.8,
        window_s: float = 10.0,
        copies: int = 2,
        rest_s: float = 10.0,
    ) -> None:
        self._rng = rng
        self._fallback = CacheAware(rng)
        self._least = rate_rps * window_s
        self._window_s = window_s
        self._copies = copies
        self._rest_s = rest_s
        self._reads: deque[tuple[float, Chain]] = deque()
        self._heat: Counter[int] = Counter()
        self._copied_s: OrderedDict[int, float] = OrderedDict()

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return where `arrival` goes, and the copy that its prefix is due."""
        self._count(arrival.chain, now_s)
        usual = self._fallback.decide(arrival, forecasts, cluster, now_s)
        chain = arrival.chain[: self._hot_blocks(arrival.chain)]
        if not chain:
            return usual
        resident = cluster.resident_blocks(chain)
        warm = [index for index, blocks in enumerate(resident) if blocks >= len(chain)]
        if not warm:
            return usual
        loads = cluster.loads()
        copies = self._copy_due(arrival, chain, cluster, warm, now_s)
        first = warm[first_by([loads[index] for index in warm], self._rng)]
        return Decision(ranked(cluster.replicas, loads, first), copies, "lightest that holds it")

    def _count(self, chain: Chain, now_s: float) -> None:
        self._reads.append((now_s, chain))
        self._heat.update(chain)
        while self._reads[0][0] <= now_s - self._window_s or len(self._reads) > MAX_READS:
            for block in self._reads.popleft()[1]:
                self._heat[block] -= 1
                if not self._heat[block]:
                    del self._heat[block]

    def _hot_blocks(self, chain: Chain) -> int:
        """Return how many leading blocks are hot: a block is read at least as often as the next."""
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high) // 2
            if self._heat[chain[middle]] >= self._least:
                low = middle + 1
            else:
                high = middle
        return low

    def _copy_due(
        self,
        arrival: Arrival,
        chain: Chain,
        cluster: ClusterView,
        warm: list[int],
        now_s: float,
    ) -> tuple[Copy, ...]:
        pending = cluster.pending(chain)
        count = len(cluster.replicas)
        cold = [i for i in range(count) if i not in warm and pending[i][0] < len(chain)]
        last_s = self._copied_s.get(chain[-1], -self._rest_s)
        if not cold or count - len(cold) >= self._copies or now_s - last_s < self._rest_s:
            return ()
        self._copied_s[chain[-1]] = now_s
        self._copied_s.move_to_end(chain[-1])
        if len(self._copied_s) > MAX_COPIED:
            self._copied_s.popitem(last=False)
        loads, names = cluster.loads(), cluster.replicas
        copy = Copy(
            prefix=Prefix(chain[-1], len(chain), len(chain) * arrival.block_tokens),
            chain=chain,
            source=names[min(warm, key=loads.__getitem__)],
            target=names[min(cold, key=loads.__getitem__)],
            size_bytes=len(chain) * cluster.block_bytes,
            deadline_s=float("inf"),
            value_s=0.0,
            cost_s=0.0,
            reason=f"{self._least:g} requests in {self._window_s:g} s",
        )
        return (copy,)
