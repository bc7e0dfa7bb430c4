"""The causal engine's replicas: as a policy sees them, and what can be done to them."""

from collections.abc import Sequence
from math import inf
from typing import Protocol

from btb.errors import ConfigError
from btb.simulation.deliveries import Deliveries, slowest_tier
from btb.simulation.parameters import CausalParameters
from btb.simulation.replica import SPECULATIVE, Job, Replica
from btb.simulation.runs import Path, cut_into_runs
from btb.simulation.setups import Setup
from btb.simulation.tiers import ReplicaCache
from btb.simulation.transfers import Transfers
from forecasting.arrival import Arrival
from policies.base import Chain, Copy, Keep


class Observer(Protocol):
    """Is told what becomes of each request: the job, its replica's number, and when."""

    def found(self, job: Job, since_tokens: int, replica: int, cluster: "CausalCluster") -> None:
        """Its tokens from `since_tokens` to `job.done_tokens` need not be computed."""
        ...

    def first_token(self, job: Job, replica: int, at_s: float) -> None:
        """Its first token came."""
        ...

    def finished(self, job: Job, replica: int, at_s: float) -> None:
        """Its last token came."""
        ...


class CausalCluster:
    """Replicas and the links between them (`policies.base.ClusterView`), at `now_s`."""

    def __init__(
        self,
        setup: Setup,
        arrivals: Sequence[Arrival],
        parameters: CausalParameters,
        observer: Observer,
    ) -> None:
        self._setup = setup
        self._arrivals = arrivals
        self._runs = cut_into_runs(arrivals)
        self.block_tokens = arrivals[0].block_tokens if arrivals else 256
        self._observer = observer
        self._attention = parameters.attention
        self._by_priority = parameters.by_priority
        self._slowness = parameters.slowness(len(arrivals))
        self.block_bytes = int(setup.kv_token_bytes * self.block_tokens)
        self.replicas = tuple(f"r{index}" for index in range(setup.replicas))
        self.now_s = 0.0
        self.nodes = [self._make_replica(n, parameters, observer) for n in range(setup.replicas)]
        self._caches = [node.cache for node in self.nodes]
        self.transfers = Transfers(
            setup,
            self._caches,
            self.block_bytes,
            parameters.copy_latency_s,
            parameters.chunk_tokens * setup.kv_token_bytes,
        )
        self._deliveries = Deliveries(self.nodes, self.transfers, self.block_tokens, self.prefill_s)

    def _make_replica(
        self, number: int, parameters: CausalParameters, observer: Observer
    ) -> Replica:
        cache = ReplicaCache(
            self._runs.blocks,
            int(self._setup.kv_capacity_bytes / self.block_bytes),
            int(parameters.ram_bytes / self.block_bytes),
            int(parameters.disk_bytes / self.block_bytes),
        )
        return Replica(
            self._setup,
            cache,
            block_tokens=self.block_tokens,
            chunk_tokens=parameters.chunk_tokens,
            prefill_s=self.prefill_s,
            ready=lambda job: self._deliveries.is_ready(number, job, self.now_s),
            found=lambda job, since: observer.found(job, since, number, self),
            first_token=lambda job, at_s: self._on_first_token(number, job, at_s),
            finished=lambda job, at_s: observer.finished(job, number, at_s),
        )

    # What a policy may ask.

    def loads(self) -> list[int]:
        """Requests waiting or running on each replica."""
        return [node.load for node in self.nodes]

    def queue_s(self, priorities: Sequence[float] | None = None) -> list[float]:
        """Seconds of prefill ahead of a request that joined each queue now."""
        now_s = self.now_s
        if priorities is None or not self._by_priority:
            return [node.backlog_s(now_s) for node in self.nodes]
        return [
            node.backlog_s(now_s, priority)
            for node, priority in zip(self.nodes, priorities, strict=True)
        ]

    @property
    def by_priority(self) -> bool:
        """Whether priorities are honoured, as the parameters say."""
        return self._by_priority

    def behind(self, priorities: Sequence[float]) -> list[int]:
        """Requests waiting on each replica that one with this priority would overtake."""
        if not self._by_priority:
            return [0] * len(priorities)
        return [
            node.behind(priority) for node, priority in zip(self.nodes, priorities, strict=True)
        ]

    def resident_blocks(self, chain: Sequence[int]) -> list[int]:
        """Leading blocks of `chain` in each replica's HBM, ready to be used."""
        path, limit = self._runs.path(chain), len(chain)
        if not path:
            return [0] * len(self.nodes)
        first = path[0]
        return [
            min(cache.matched(path), limit) if cache.valid[first] else 0 for cache in self._caches
        ]

    def stored_blocks(self, chain: Sequence[int]) -> list[int]:
        """Leading blocks of `chain` in each replica's HBM, RAM or disk."""
        path, limit = self._runs.path(chain), len(chain)
        if not path:
            return [0] * len(self.nodes)
        first = path[0]
        return [
            min(cache.stored(path), limit) if cache.holds(first) else 0 for cache in self._caches
        ]

    def pending(self, chain: Sequence[int]) -> list[tuple[int, float]]:
        """Leading blocks each replica will hold, and seconds until then, as estimated."""
        path, limit = self._runs.path(chain), len(chain)
        return self._deliveries.pending(path, limit, self.now_s)

    def prefill_s(self, tokens: int, context_tokens: int) -> float:
        """Seconds to compute `tokens` after `context_tokens`."""
        return self._setup.prefill_s(tokens, context_tokens, attention=self._attention)

    def copy_s(self, source: int, target: int, size_bytes: float) -> float:
        """Seconds from one replica's memory into another's, as the links are now."""
        return self.transfers.seconds(source, target, "hbm", size_bytes)

    def load_s(self, replica: int, chain: Sequence[int]) -> float:
        """Seconds from the replica's own RAM and disk, as its links are now."""
        path, cache = self._runs.path(chain), self.nodes[replica].cache
        blocks = min(cache.stored(path), len(chain)) - min(cache.matched(path), len(chain))
        tier = slowest_tier(cache, path, len(chain))
        return self.transfers.blocks_s(replica, tier, blocks)

    def free_bytes(self) -> list[float]:
        """HBM that nothing holds."""
        return [float(node.cache.free_blocks * self.block_bytes) for node in self.nodes]

    # What can be done.

    def enqueue(self, index: int, replica: int, priority: float) -> bool:
        """Queue the arrival `index`; return whether the replica's step changed."""
        if not self._by_priority:
            priority = 0.0
        arrival = self._arrivals[index]
        return self._join(index, arrival, self._runs.paths[index], replica, priority)

    def compute(self, chain: Chain, replica: int) -> bool:
        """Queue the prefix `chain` to be computed ahead of its requests, behind all of them."""
        path = self._runs.path(chain)
        tokens = len(chain) * self.block_tokens
        ahead = Arrival(self.now_s, chain, self.block_tokens, tokens)
        return bool(path) and self._join(SPECULATIVE, ahead, path, replica, inf)

    def keep(self, keep: Keep, replica: int) -> None:
        """Let a prefix go last from the replica's HBM."""
        path = self._runs.path(keep.chain)
        self.nodes[replica].cache.keep(path, keep.until_s, self.now_s)

    def _join(
        self, index: int, arrival: Arrival, path: Path, replica: int, priority: float
    ) -> bool:
        node, chain_blocks = self.nodes[replica], len(arrival.chain)
        tokens = arrival.input_tokens + arrival.output_tokens
        extra_blocks = max(0, -(-tokens // self.block_tokens) - chain_blocks)
        if chain_blocks + extra_blocks > node.cache.capacity_blocks:
            raise ConfigError(
                f"request {index} needs {tokens} tokens of KV; a replica of {self._setup.name} has "
                f"room for {node.cache.capacity_blocks * self.block_tokens}: choose a larger setup"
            )
        estimate_s = self._estimate_s(arrival, self._deliveries.expect(replica, path))
        alone_s = self._estimate_s(arrival, node.cache.matched(path))
        starts_s = self.now_s + node.backlog_s(self.now_s, priority)
        self._deliveries.will_compute(replica, path, starts_s + estimate_s, starts_s + alone_s)
        job = Job(
            index=index,
            path=path,
            chain_blocks=chain_blocks,
            extra_blocks=extra_blocks,
            input_tokens=arrival.input_tokens,
            output_tokens=arrival.output_tokens,
            estimate_s=estimate_s,
            priority=priority,
            slowness=self._slowness[index],
        )
        return node.join(job, self.now_s)

    def _estimate_s(self, arrival: Arrival, blocks: int) -> float:
        hit_tokens = min(blocks * self.block_tokens, arrival.input_tokens - 1)
        return self.prefill_s(arrival.input_tokens - hit_tokens, hit_tokens)

    def start_copy(self, copy: Copy, source: int, target: int) -> None:
        """Begin `copy` with what the source holds; what it will hold follows as it gets there."""
        path = self._runs.path(copy.chain)
        self._deliveries.start_copy(copy, path, source, target, self.now_s)

    def follow_up(self, replica: int) -> list[int]:
        """Send on what has got to `replica`; return the replicas whose step changed."""
        return self._deliveries.follow_up(replica, self.now_s)

    def land(self) -> list[int]:
        """Let the transfers land that have come; return the replicas whose step changed."""
        return self._deliveries.land(self.now_s)

    def _on_first_token(self, number: int, job: Job, at_s: float) -> None:
        self._deliveries.computed(number, job.path, self.now_s)
        self._observer.first_token(job, number, at_s)
