"""The article's engine, exactly, to reproduce its figures. Not causal: see ASSUMPTIONS.

After github.com/jwlaboratory/bite-the-bullet and its simulator, inference-sim. Each replica has a
clock of its own that runs ahead of the arrivals: a request that waits is admitted, and its blocks
counted as held, at the next arrival anywhere, even if its prefill begins seconds later.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from btb.controller import Controller
from btb.errors import ConfigError
from btb.simulation.prototype_replica import ArticleReplica, Running
from btb.simulation.result import Result, Transfer
from btb.simulation.runs import Path, Runs, cut_into_runs
from btb.simulation.setups import Setup
from forecasting.arrival import Arrival
from policies.base import Copy

ASSUMPTIONS = (
    "The article's model, kept with its faults to reproduce its figures.",
    "Not causal: a replica holds a request's blocks from its admission, seconds before they exist.",
    "A replica prefills one request at a time, before decoding goes on; prefill ignores attention.",
    "Free HBM is counted twice, as cache and as running KV; RAM is unbounded; LRU drops a prefix "
    "from its head.",
    "A copy uses the target's bandwidth only, and stops its compute meanwhile.",
    "int4 weights also quarter the KV.",
)


@dataclass(slots=True)
class _Warming:
    """A copy: when it will be there, and from when on it kept its target busy."""

    started_s: float
    ready_s: float
    source: int
    target: int
    path: Path
    copy: Copy
    used: bool = False


class PrototypeCluster:
    """The article's replicas, as a policy sees them (`policies.base.ClusterView`) and as they run.

    All times are seconds, all sizes blocks unless the name says otherwise.
    """

    def __init__(self, setup: Setup, arrivals: Sequence[Arrival]) -> None:
        self._setup = setup
        self._arrivals = arrivals
        self._runs: Runs = cut_into_runs(arrivals)
        self.replicas = tuple(f"r{index}" for index in range(setup.replicas))
        self._block_tokens = arrivals[0].block_tokens if arrivals else 256
        self.block_bytes = int(setup.article_kv_token_bytes * self._block_tokens)
        self._kv_tokens = int(setup.kv_capacity_bytes / setup.article_kv_token_bytes)
        self._token_s = setup.prefill_s(1, attention=False)
        self._ram_block_s = self.block_bytes / setup.host_bytes_s
        self._copy_block_s = self.block_bytes / setup.rdma_bytes_s
        # A run of its own for what each request generates: never matched, but it takes room.
        self._tails = [
            max(0, -(-(a.input_tokens + a.output_tokens) // self._block_tokens) - len(a.chain))
            for a in arrivals
        ]
        self._first_tail = len(self._runs.blocks)
        self._blocks = self._runs.blocks + self._tails
        self._nodes = [self._make_replica() for _ in self.replicas]
        self._clock_s = 0.0
        self._warming: list[_Warming] = []
        self._all_warmings: list[_Warming] = []
        self._warmed: dict[tuple[int, int], _Warming] = {}
        self._ttft_s = [0.0] * len(arrivals)
        self._finished_s = [0.0] * len(arrivals)
        self._replica = [0] * len(arrivals)
        self._hit_tokens = {
            tier: np.zeros(len(arrivals), dtype=np.int64) for tier in ("hbm", "ram", "copied")
        }

    def _make_replica(self) -> ArticleReplica:
        setup = self._setup
        step_s = setup.decode_step_s(0.0)
        with_token_s = setup.decode_step_s(1.0, kv_token_bytes=setup.article_kv_token_bytes)
        return ArticleReplica(
            self._blocks,
            int(setup.kv_capacity_bytes / self.block_bytes),
            step_s,
            with_token_s - step_s,
            self._admit,
            self._on_finished,
        )

    # What a policy may ask.

    def loads(self) -> list[int]:
        """Requests waiting or running on each replica."""
        return [len(node.running) + len(node.waiting) for node in self._nodes]

    def queue_s(self, priorities: Sequence[float] | None = None) -> list[float]:
        """Seconds until each replica's own clock, and the prefill of what waits, are over."""
        now_s = self._clock_s
        return [
            max(0.0, node.now_s - now_s)
            + sum(self._token_s * self._arrivals[i].input_tokens for i in node.waiting)
            for node in self._nodes
        ]

    @property
    def by_priority(self) -> bool:
        """False: in order of arrival."""
        return False

    def behind(self, priorities: Sequence[float]) -> list[int]:
        """None: requests are served in order of arrival."""
        return [0] * len(priorities)

    def resident_blocks(self, chain: Sequence[int]) -> list[int]:
        """Leading blocks that are held in HBM; those in RAM in between don't count."""
        return self._matched(chain, with_ram=False)

    def stored_blocks(self, chain: Sequence[int]) -> list[int]:
        """Leading blocks in HBM or RAM."""
        return self._matched(chain, with_ram=True)

    def _matched(self, chain: Sequence[int], *, with_ram: bool) -> list[int]:
        path, limit = self._runs.path(chain), len(chain)
        found = []
        for node in self._nodes:
            count, in_ram = node.matched(path)
            found.append(min(count if with_ram else count - in_ram, limit))
        return found

    def pending(self, chain: Sequence[int]) -> list[tuple[int, float]]:
        """Copies of `chain` that are on their way."""
        found = [(0, 0.0)] * len(self._nodes)
        if self._warming:
            path = self._runs.path(chain)
            for warming in self._warming:
                if warming.path == path:
                    wait_s = max(0.0, warming.ready_s - self._clock_s)
                    found[warming.target] = (min(warming.copy.prefix.blocks, len(chain)), wait_s)
        return found

    def prefill_s(self, tokens: int, context_tokens: int) -> float:
        """Seconds to compute `tokens`; the article leaves attention out."""
        return self._token_s * tokens

    def copy_s(self, source: int, target: int, size_bytes: float) -> float:
        """Seconds on the target's NICs."""
        return size_bytes / self._setup.rdma_bytes_s

    def load_s(self, replica: int, chain: Sequence[int]) -> float:
        """Seconds over the host link."""
        in_ram = self.stored_blocks(chain)[replica] - self.resident_blocks(chain)[replica]
        return in_ram * self._ram_block_s

    def free_bytes(self) -> list[float]:
        """HBM that no cached block holds."""
        return [float(node.free_blocks * self.block_bytes) for node in self._nodes]

    # What happens.

    def run(self, controller: Controller) -> Result:
        """Route every arrival, run all replicas dry, and return what became of each request."""
        number = {name: index for index, name in enumerate(self.replicas)}
        nodes = self._nodes
        reasons: dict[str, int] = {}
        for index, arrival in enumerate(self._arrivals):
            at_s = self._clock_s = arrival.at_s
            for node in nodes:
                if node.waiting or node.running:
                    node.advance(at_s)
                elif node.now_s < at_s:
                    node.now_s = at_s
            if self._warming:
                self._finish_warming(at_s)
            decision = controller.on_arrival(arrival, self)
            reasons[decision.reason] = reasons.get(decision.reason, 0) + 1
            for copy in decision.copies:
                self._start_copy(copy, number[copy.target], number[copy.source])
            replica = number[decision.ranked[0]]
            self._replica[index] = replica
            nodes[replica].waiting.append(index)
        for node in nodes:
            node.advance(None)
        return self._result(reasons)

    def _start_copy(self, copy: Copy, target: int, source: int) -> None:
        node = self._nodes[target]
        start_s = max(self._clock_s, node.now_s)
        node.now_s = start_s + copy.prefix.blocks * self._copy_block_s
        path = self._runs.path(copy.chain)
        warming = _Warming(start_s, node.now_s, source, target, path, copy)
        self._warming.append(warming)
        self._all_warmings.append(warming)

    def _finish_warming(self, now_s: float) -> None:
        still = []
        for warming in self._warming:
            if warming.ready_s > now_s + 1e-12:
                still.append(warming)
                continue
            left = warming.copy.prefix.blocks
            node = self._nodes[warming.target]
            for run in warming.path:
                node.hold(run, min(left, self._blocks[run]))
                self._warmed[warming.target, run] = warming
                left -= self._blocks[run]
            node.evict()
        self._warming = still

    def _admit(self, node: ArticleReplica, index: int) -> bool:
        """Begin the request `index`; its blocks count as held at once. False if it has no room."""
        arrival = self._arrivals[index]
        input_tokens = arrival.input_tokens
        tokens = input_tokens + arrival.output_tokens
        if node.batch_tokens + tokens > self._kv_tokens:
            if not node.running:
                raise ConfigError(
                    f"request {index} needs {tokens} tokens of KV; a replica of {self._setup.name} "
                    f"has room for {self._kv_tokens}: choose a larger setup"
                )
            return False
        path = self._runs.paths[index]
        matched, in_ram = node.matched(path)
        hit = min(matched * self._block_tokens, input_tokens)
        load_s = min(in_ram * self._ram_block_s, hit * self._token_s)
        node.now_s += load_s + (input_tokens - hit) * self._token_s
        self._ttft_s[index] = node.now_s - arrival.at_s
        if hit:
            self._note_hit(index, path, hit, in_ram)
        node.running.append(Running(index, tokens, arrival.output_tokens))
        node.batch_tokens += tokens
        node.context_tokens += input_tokens
        for run in path:
            node.hold(run, self._blocks[run])
        if self._tails[index]:
            node.hold(self._first_tail + index, self._tails[index])
        if node.free_blocks < 0:
            node.evict()
        return True

    def _note_hit(self, index: int, path: Path, hit: int, in_ram: int) -> None:
        tier = "hbm"
        if self._warmed:
            warming = self._warmed.get((self._replica[index], path[0]))
            if warming is not None:
                warming.used = True
                tier = "copied"
        self._hit_tokens["ram" if in_ram else tier][index] = hit

    def _on_finished(self, running: Running, at_s: float) -> None:
        self._finished_s[running.index] = at_s

    def _result(self, reasons: dict[str, int]) -> Result:
        arrivals = self._arrivals
        return Result(
            arrived_s=np.array([arrival.at_s for arrival in arrivals]),
            ttft_s=np.array(self._ttft_s),
            finished_s=np.array(self._finished_s),
            replica=np.array(self._replica, dtype=np.int64),
            input_tokens=np.array([a.input_tokens for a in arrivals], dtype=np.int64),
            hit_tokens=self._hit_tokens,
            transfers=tuple(_transfer(warming) for warming in self._all_warmings),
            decisions=reasons,
        )


def _transfer(warming: _Warming) -> Transfer:
    copy = warming.copy
    return Transfer(
        started_s=warming.started_s,
        ended_s=warming.ready_s,
        source=warming.source,
        target=warming.target,
        source_tier="hbm",
        prefix_key=copy.prefix.key,
        blocks=copy.prefix.blocks,
        size_bytes=copy.size_bytes,
        asked=True,
        used=warming.used,
        reason=copy.reason,
    )


def simulate_prototype(setup: Setup, controller: Controller, arrivals: Sequence[Arrival]) -> Result:
    """Run a fresh `controller` on the article's engine. Nothing in it is random.

    Raises
    ------
    ConfigError
        If a request needs more KV than a replica has room for.
    """
    return PrototypeCluster(setup, arrivals).run(controller)
