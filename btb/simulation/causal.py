"""The default engine: a block is held once it has been computed or received, and not before."""

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from math import inf

import numpy as np

from btb.controller import Controller
from btb.simulation.cluster import CausalCluster
from btb.simulation.parameters import USUAL, CausalParameters
from btb.simulation.replica import SPECULATIVE, Job
from btb.simulation.result import Result, Transfer
from btb.simulation.setups import Setup
from btb.simulation.transfers import Moving
from forecasting.arrival import Arrival
from policies.base import Copy, Feedback, Keep

ASSUMPTIONS = (
    "A block can be used, and copied, from the moment it has been computed or received.",
    "Prefill is compute-bound with the attention term, one prompt at a time, in chunks of 2,048 "
    "tokens; running requests decode one token beside each chunk.",
    "Prompts are served by the policy's priority, then in order of arrival; one with a better "
    "priority takes the place of another at the end of a chunk.",
    "The first token comes with the last chunk of the prompt.",
    "A request that starts takes room for its whole prompt and answer; nothing is preempted.",
    "HBM holds cached and running KV together; what is unused for longest goes first, tail before "
    "head, to 512 GB of RAM, and comes back from there when that beats computing it.",
    "What is computed or received is sent on in pieces, as it gets there; pieces begin at the ends "
    "of chunks.",
    "Copies run beside compute and share each replica's NICs fairly, both ways; each piece takes "
    "1 ms beside its bytes.",
    "KV is kept in 16 bits where weights are int4 (8 bits on dense1t).",
    "Generated tokens are not reused by later requests.",
    "Writing evicted KV to RAM costs no time; service times have no noise unless asked for; the "
    "router adds none.",
)
"""Printed beside every result of this engine."""

TICK_S = 5.0
"""Seconds between two looks ahead of a policy that anticipates."""


class _Loop:
    """The event loop: arrivals, ends of replicas' steps, transfers that land, in order of time."""

    def __init__(self, cluster: CausalCluster, controller: Controller) -> None:
        self._cluster = cluster
        self._controller = controller
        self._ends: list[tuple[float, int]] = []
        self._tick_s = inf
        self._number = {name: index for index, name in enumerate(cluster.replicas)}
        self._reasons: dict[str, int] = {}

    def run(self, arrivals: Sequence[Arrival]) -> dict[str, int]:
        """Route all `arrivals`, run the replicas dry, and return the reasons, counted."""
        cluster = self._cluster
        if arrivals and self._controller.anticipates:
            self._tick_s = arrivals[0].at_s + TICK_S
        for index, arrival in enumerate(arrivals):
            while self._tick_s <= arrival.at_s:
                self._tick()
            self._until(arrival.at_s)
            cluster.now_s = arrival.at_s
            decision = self._controller.on_arrival(arrival, cluster)
            reason = decision.reason
            self._reasons[reason] = self._reasons.get(reason, 0) + 1
            self._carry_out(decision.copies, decision.keeps)
            replica = self._number[decision.ranked[0]]
            if cluster.enqueue(index, replica, decision.priority):
                self._watch(replica)
        self._until(inf)
        return self._reasons

    def _tick(self) -> None:
        """Let the policy act ahead of what it expects."""
        cluster, now_s = self._cluster, self._tick_s
        self._until(now_s)
        cluster.now_s = now_s
        self._tick_s += TICK_S
        ahead = self._controller.tick(now_s, cluster)
        self._carry_out(ahead.copies, ahead.keeps)
        for compute in ahead.computes:
            replica = self._number[compute.replica]
            if cluster.compute(compute.chain, replica):
                self._watch(replica)

    def _carry_out(self, copies: Sequence[Copy], keeps: Sequence[Keep]) -> None:
        for copy in copies:
            self._cluster.start_copy(copy, self._number[copy.source], self._number[copy.target])
        for keep in keeps:
            self._cluster.keep(keep, self._number[keep.replica])

    def _until(self, at_s: float) -> None:
        """Let all happen that happens up to `at_s`."""
        cluster = self._cluster
        while True:
            step_s = self._ends[0][0] if self._ends else inf
            moved_s = cluster.transfers.next_s()
            now_s = min(step_s, moved_s)
            if now_s > at_s or now_s == inf:
                return
            cluster.now_s = now_s
            if moved_s <= step_s:
                for replica in cluster.land():
                    self._watch(replica)
                continue
            _, replica = heappop(self._ends)
            step = cluster.nodes[replica].step
            if step is not None and step.ends_s == now_s:
                cluster.nodes[replica].end_step(now_s)
                self._watch(replica)
                for other in cluster.follow_up(replica):
                    self._watch(other)

    def _watch(self, replica: int) -> None:
        step = self._cluster.nodes[replica].step
        if step is not None:
            heappush(self._ends, (step.ends_s, replica))


class _Recorder:
    """Writes down what becomes of each request."""

    def __init__(self, arrivals: Sequence[Arrival], controller: Controller) -> None:
        size = len(arrivals)
        self._arrivals = arrivals
        self._controller = controller
        self.ttft_s = np.full(size, np.nan)
        self.finished_s = np.full(size, np.nan)
        self.replica = np.zeros(size, dtype=np.int64)
        self.hits = {t: np.zeros(size, dtype=np.int64) for t in ("hbm", "copied", "ram", "disk")}
        self.speculated_used_tokens = 0

    def found(self, job: Job, since_tokens: int, replica: int, cluster: CausalCluster) -> None:
        """Note what `job` need not compute, by where it came from, and which transfers it used."""
        if job.speculative:
            return
        cache, begins = cluster.nodes[replica].cache, 0
        for run in job.path:
            ends = min(begins + cache.valid[run] * cluster.block_tokens, job.done_tokens)
            tokens, begins = ends - max(begins, since_tokens), ends
            if tokens <= 0:
                continue
            tier, origin = "hbm", cache.origin.get(run)
            if origin == SPECULATIVE:
                self.speculated_used_tokens += cache.valid[run] * cluster.block_tokens
                del cache.origin[run]
            elif origin is not None:
                moving = cluster.transfers.all[origin]
                moving.used = True
                if moving.source != moving.target:
                    tier = "copied"
                elif moving.copy is not None or origin == job.loaded_by:
                    tier = moving.tier
            self.hits[tier][job.index] += tokens

    def first_token(self, job: Job, replica: int, at_s: float) -> None:
        """Note the TTFT, and let the controller know."""
        if job.speculative:
            return
        arrival = self._arrivals[job.index]
        ttft_s = at_s - arrival.at_s
        self.ttft_s[job.index] = ttft_s
        self.replica[job.index] = replica
        hits = sum(int(tokens[job.index]) for tokens in self.hits.values())
        feedback = Feedback(arrival.request_id, f"r{replica}", ttft_s, hits)
        self._controller.on_first_token(feedback)

    def finished(self, job: Job, replica: int, at_s: float) -> None:
        """Note when the last token came."""
        if not job.speculative:
            self.finished_s[job.index] = at_s

    def result(self, cluster: CausalCluster, reasons: dict[str, int]) -> Result:
        """Return all of it."""
        assert not np.isnan(self.finished_s).any(), "a request was lost"
        speculated_tokens = sum(node.speculated_tokens for node in cluster.nodes)
        return Result(
            arrived_s=np.array([arrival.at_s for arrival in self._arrivals]),
            ttft_s=self.ttft_s,
            finished_s=self.finished_s,
            replica=self.replica,
            input_tokens=np.array([a.input_tokens for a in self._arrivals], dtype=np.int64),
            hit_tokens=self.hits,
            transfers=tuple(_transfer(m) for m in cluster.transfers.all if m.size_bytes),
            decisions=reasons,
            speculated_s=sum(node.speculated_s for node in cluster.nodes),
            speculated_tokens=speculated_tokens,
            unused_speculated_tokens=max(0, speculated_tokens - self.speculated_used_tokens),
        )


def _transfer(moving: Moving) -> Transfer:
    copy = moving.copy
    return Transfer(
        started_s=moving.started_s,
        ended_s=moving.ended_s,
        source=moving.source,
        target=moving.target,
        source_tier=moving.tier,
        prefix_key=copy.prefix.key if copy else 0,
        blocks=moving.blocks,
        size_bytes=moving.size_bytes,
        asked=copy is not None,
        used=moving.used,
        reason=copy.reason if copy else "needed by a request that is about to run",
    )


def simulate_causal(
    setup: Setup,
    controller: Controller,
    arrivals: Sequence[Arrival],
    parameters: CausalParameters = USUAL,
) -> Result:
    """Run a fresh `controller` on the causal engine. Nothing in it is random.

    Raises
    ------
    ConfigError
        If a request needs more KV than a replica has room for.
    """
    arrivals = [
        replace(
            arrival,
            request_id=arrival.request_id or str(index),
            output_tokens=parameters.output_tokens or arrival.output_tokens,
        )
        for index, arrival in enumerate(arrivals)
    ]
    setup = parameters.varied(setup)
    recorder = _Recorder(arrivals, controller)
    cluster = CausalCluster(setup, arrivals, parameters, recorder)
    reasons = _Loop(cluster, controller).run(arrivals)
    return recorder.result(cluster, reasons)
