"""The live cluster at one moment, as policies see it."""

from collections.abc import Sequence
from math import inf

from btb.service.orders import Orders
from btb.service.replica import Replica
from btb.simulation.setups import Setup
from policies.base import Chain


class LiveView:
    """A `policies.base.ClusterView` of the live cluster.

    Made anew for each decision, and of no use after something was placed. Nothing may be awaited
    between making it and placing what was decided.
    """

    __slots__ = ("_block_tokens", "_list", "_now_s", "_orders", "_resident", "_setup")

    def __init__(
        self,
        replicas: list[Replica],
        setup: Setup,
        orders: Orders | None,
        now_s: float,
        block_tokens: int,
    ) -> None:
        self._list = replicas
        self._setup = setup
        self._orders = orders
        self._now_s = now_s
        self._block_tokens = block_tokens
        self._resident: dict[Chain, list[int]] = {}

    @property
    def replicas(self) -> list[str]:
        """Names of the replicas."""
        return [replica.name for replica in self._list]

    @property
    def block_bytes(self) -> int:
        """KV bytes of one block on a replica of the service's setup."""
        return round(self._setup.kv_token_bytes * self._block_tokens)

    def loads(self) -> list[int]:
        """Requests on each replica: sent from here and not ended, and others that it reported."""
        return [replica.requests() for replica in self._list]

    def queue_s(self, priorities: Sequence[float] | None = None) -> list[float]:
        """Seconds of prefill that are expected to be ahead of a new request."""
        return [replica.queue_s(self._now_s) for replica in self._list]

    @property
    def by_priority(self) -> bool:
        """False: in order of arrival."""
        return False

    def behind(self, priorities: Sequence[float]) -> list[int]:
        """None: engines are taken to serve in order of arrival."""
        return [0] * len(priorities)

    def resident_blocks(self, chain: Chain) -> list[int]:
        """Leading blocks of `chain` thought to be on each replica."""
        found = self._resident.get(chain)
        if found is None:
            found = [replica.residency.resident(chain, self._now_s) for replica in self._list]
            self._resident[chain] = found
        return found

    def stored_blocks(self, chain: Chain) -> list[int]:
        """Return the same as `resident_blocks`: nothing is known yet of lower tiers."""
        return self.resident_blocks(chain)

    def pending(self, chain: Chain) -> list[tuple[int, float]]:
        """Leading blocks of `chain` that each replica will have, and seconds until then."""
        found = []
        for replica in self._list:
            blocks, ready_s = replica.residency.coming(chain)
            wait_s = ready_s - self._now_s
            found.append((blocks, wait_s) if blocks and wait_s > 0.0 else (0, 0.0))
        return found

    def prefill_s(self, tokens: int, context_tokens: int) -> float:
        """Seconds to compute `tokens` after `context_tokens` on the service's setup."""
        return self._setup.prefill_s(tokens, context_tokens)

    def copy_s(self, source: int, target: int, size_bytes: float) -> float:
        """Seconds to move `size_bytes` between two replicas, beside the copies ordered before.

        Infinite where nobody carries copies out.
        """
        if self._orders is None:
            return inf
        one, other = self._list[source], self._list[target]
        bytes_s = min(one.setup.rdma_bytes_s, other.setup.rdma_bytes_s)
        return size_bytes * (1 + self._orders.beside(one.name, other.name)) / bytes_s

    def load_s(self, replica: int, chain: Chain) -> float:
        """None: what is below a replica's HBM is not known here."""
        return 0.0

    def free_bytes(self) -> list[float]:
        """HBM of each replica that is free: as reported, or by what is thought to be there."""
        return [replica.free_bytes() for replica in self._list]
