"""The causal engine's replicas: as a policy sees them, and what can be done to them."""

from collections.abc import Sequence
from math import inf
from typing import Protocol

from btb.errors import ConfigError
from btb.simulation.parameters import CausalParameters
from btb.simulation.replica import SPECULATIVE, Job, Replica
from btb.simulation.runs import Path, cut_into_runs
from btb.simulation.setups import Setup
from btb.simulation.tiers import ReplicaCache
from btb.simulation.transfers import Moving, Transfers
from forecasting.arrival import Arrival
from policies.base import Chain, Copy, Keep

NOTHING = (0, 0.0)
"""No blocks under way, in no time."""


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
        self._expected_s: list[dict[int, float]] = [{} for _ in self.nodes]
        self._unblocked: list[int] = []

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
            ready=lambda job: self._is_ready(number, job),
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
        if not path:
            return [NOTHING] * len(self.nodes)
        first = path[0]
        return [
            self._pending_at(number, path, limit)
            if first in expected or (expected and cache.valid[first])
            else NOTHING
            for number, (expected, cache) in enumerate(
                zip(self._expected_s, self._caches, strict=True)
            )
        ]

    def _pending_at(self, number: int, path: Path, limit: int) -> tuple[int, float]:
        expected, cache = self._expected_s[number], self._caches[number]
        if not expected:
            return NOTHING
        blocks, ready_s, any_expected = 0, self.now_s, False
        for run in path:
            if cache.valid[run] < cache.run_blocks(run):
                at_s = expected.get(run)
                if at_s is None:
                    break
                any_expected = True
                ready_s = max(ready_s, at_s)
            blocks += cache.run_blocks(run)
        return (min(blocks, limit), ready_s - self.now_s) if any_expected else NOTHING

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
        tier = self._tier(cache, path, len(chain))
        return self.transfers.seconds(replica, replica, tier, blocks * self.block_bytes)

    @staticmethod
    def _tier(cache: ReplicaCache, path: Path, limit: int) -> str:
        """Return the slowest of the tiers that hold a part of the first `limit` blocks."""
        stored = min(cache.stored(path), limit)
        return "ram" if cache.stored_in_ram(path) >= stored else "disk"

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
        """Let a prefix go last from the replica's HBM, or first if its time is over."""
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
        estimate_s = self._estimate_s(arrival, self._expect(replica, path))
        alone_s = self._estimate_s(arrival, node.cache.matched(path))
        starts_s = self.now_s + node.backlog_s(self.now_s, priority)
        expected = self._expected_s[replica]
        for run in path:
            if node.cache.valid[run] < node.cache.run_blocks(run):
                # Computed by whoever is first; by this one if it overtakes the others.
                ready_s = starts_s + (alone_s if run in expected else estimate_s)
                expected[run] = min(ready_s, expected.get(run, ready_s))
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

    def _expect(self, replica: int, path: Path) -> int:
        """Return how many leading blocks of `path` will be there when a job's turn comes."""
        cache, expected, count = self.nodes[replica].cache, self._expected_s[replica], 0
        for run in path:
            if cache.valid[run] < cache.run_blocks(run) and run not in expected:
                return count + cache.valid[run]
            count += cache.run_blocks(run)
        return count

    def start_copy(self, copy: Copy, source: int, target: int) -> None:
        """Begin `copy` with what the source holds; what it will hold follows as it gets there.

        Nothing happens if the target holds or gets that much already, or has no room for it.
        """
        path = self._runs.path(copy.chain)
        cache, holder = self.nodes[target].cache, self.nodes[source].cache
        in_hbm = holder.matched(path)
        blocks = min(copy.prefix.blocks, max(in_hbm, holder.stored(path)))
        ready_s = self.now_s
        coming, wait_s = self._pending_at(source, path, copy.prefix.blocks)
        if source == target:  # a load from its own RAM or disk
            coming = 0
        if coming > blocks:
            blocks, ready_s = coming, self.now_s + wait_s
        inbound = self.transfers.inbound(target, path)
        already = self.transfers.brings(inbound, path) if inbound else 0
        if blocks <= max(cache.matched(path), already):
            return
        tier = "hbm"
        if coming < blocks and in_hbm < blocks:
            tier = self._tier(holder, path, blocks)
        moving = self.transfers.plan(source, target, tier, path, blocks, ready_s, copy)
        self._expect_transfer(moving)
        if coming < blocks:
            self._begin(moving, blocks)
        else:
            self._go_on(moving)

    def _expect_transfer(self, moving: Moving) -> None:
        ends_s = self.transfers.ends_s(moving, self.now_s)
        expected = self._expected_s[moving.target]
        for run in moving.path:
            expected[run] = min(ends_s, expected.get(run, ends_s))

    def _begin(self, moving: Moving, upto: int) -> bool:
        """Move the first `upto` blocks; if there is no room for them, its jobs go on without."""
        if self.transfers.begin(moving, upto, self.now_s):
            return True
        self._forget(moving)
        for other in self.transfers.idle(moving.target):
            self._go_on(other)
        return False

    def _go_on(self, moving: Moving) -> None:
        """Move what the source has by now and the target lacks; end it if no more is to come."""
        source, target = self.nodes[moving.source], self.nodes[moving.target]
        there = target.cache.matched(moving.path)
        if there < moving.blocks:
            upto = min(source.cache.matched(moving.path), moving.blocks)
            if upto > max(there, target.computing(moving.path)):
                self._begin(moving, upto)
                return
            coming, _ = self._pending_at(moving.source, moving.path, moving.blocks)
            if max(upto, coming) >= moving.blocks:
                return
        self.transfers.end(moving, self.now_s)
        self._forget(moving)

    def _forget(self, moving: Moving) -> None:
        for run in moving.path:
            self._expected_s[moving.target].pop(run, None)
        self._unblocked.append(moving.target)
        self.nodes[moving.target].unblock(moving.waiting)
        moving.waiting = []

    def follow_up(self, replica: int) -> list[int]:
        """Send on what has got to `replica`; return the replicas whose step changed."""
        for moving in self.transfers.idle(replica):
            if moving.flow is None and moving.ended_s == inf:
                self._go_on(moving)
        woken, self._unblocked = self._unblocked, []
        return [number for number in woken if self.nodes[number].wake(self.now_s)]

    def land(self) -> list[int]:
        """Let the transfers land that have come; return the replicas whose step changed."""
        changed = []
        for moving in self.transfers.land(self.now_s):
            if moving.ended_s < inf:
                self._forget(moving)
            self._unblocked.append(moving.source)  # what it pinned there may have been in the way
            changed += self.follow_up(moving.target)
            if moving.ended_s == inf:
                changed += self.follow_up(moving.source)
        return changed

    def _is_ready(self, number: int, job: Job) -> bool:
        """Whether `job` can start now: no KV is on its way, or could be, that is worth a wait."""
        cache = self.nodes[number].cache
        have = cache.matched(job.path)
        job.done_tokens = min(have * self.block_tokens, job.input_tokens - 1)
        moving = self.transfers.inbound(number, job.path)
        if moving is not None and self.transfers.brings(moving, job.path) > have:
            gain_s = self._compute_s(job, have, self.transfers.brings(moving, job.path))
            wait_s = self.transfers.ends_s(moving, self.now_s) - self.now_s
            if wait_s < 2 * gain_s and not self._waits_for_itself(number, moving):
                moving.waiting.append(job)
                return False
        return not self._load(number, job, have)

    def _waits_for_itself(self, number: int, moving: Moving) -> bool:
        """Whether what `moving` brings is, by way of others, to come from replica `number`."""
        seen = set()
        while moving.flow is None and moving.source not in seen:
            if moving.source == number:
                return True
            seen.add(moving.source)
            before = self.transfers.inbound(moving.source, moving.path)
            if before is None:
                return False
            moving = before
        return False

    def _compute_s(self, job: Job, have: int, blocks: int) -> float:
        context = have * self.block_tokens
        tokens = min(blocks * self.block_tokens, job.input_tokens) - context
        return self.prefill_s(max(0, tokens), context)

    def _load(self, number: int, job: Job, have: int) -> bool:
        """Begin to load what the replica's own RAM or disk holds of `job`, if that is quicker."""
        cache = self.nodes[number].cache
        stored = cache.stored(job.path)
        if stored <= have or job.loaded_by >= 0:
            return False
        tier = self._tier(cache, job.path, stored)
        size_bytes = (stored - have) * self.block_bytes
        load_s = self.transfers.seconds(number, number, tier, size_bytes)
        if load_s >= self._compute_s(job, have, stored):
            return False
        moving = self.transfers.plan(number, number, tier, job.path, stored, self.now_s)
        self._expect_transfer(moving)
        if not self._begin(moving, stored):
            return False
        job.loaded_by = moving.number
        moving.waiting.append(job)
        return True

    def _on_first_token(self, number: int, job: Job, at_s: float) -> None:
        expected = self._expected_s[number]
        for run in job.path:
            expected.pop(run, None)
        for moving in self.transfers.idle(number):
            if moving.source == number:
                self._go_on(moving)
        self._observer.first_token(job, number, at_s)
