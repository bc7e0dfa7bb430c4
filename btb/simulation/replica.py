"""One causal replica: a queue, one prefill in chunks, and a batch that decodes beside it."""

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil, sqrt

from btb.simulation.runs import Path
from btb.simulation.setups import Setup
from btb.simulation.tiers import ReplicaCache

MAX_BATCH = 256
"""Requests that run together on one replica; vLLM's default for `max_num_seqs` on such GPUs."""

SPECULATIVE = -1
"""Number of a job that is no request, but a prefix computed before it is asked for."""


@dataclass(slots=True, eq=False)
class Job:
    """A request on its replica. `done_tokens` of its prompt are in HBM; `estimate_s` is queued.

    Its prefill takes `slowness` times as long as is estimated.
    """

    index: int
    path: Path
    chain_blocks: int
    extra_blocks: int
    input_tokens: int
    output_tokens: int
    estimate_s: float
    priority: float = 0.0
    done_tokens: int = 0
    loaded_by: int = -1
    begun: bool = False
    slowness: float = 1.0

    @property
    def speculative(self) -> bool:
        """Whether nobody waits for it."""
        return self.index == SPECULATIVE

    def __lt__(self, other: "Job") -> bool:
        """Whether this one is served first: by priority, then by arrival."""
        return (self.priority, self.index) < (other.priority, other.index)


@dataclass(frozen=True, slots=True)
class Step:
    """What a replica does until `ends_s`: `tokens` of a prefill, or `steps` of decoding."""

    started_s: float
    ends_s: float
    tokens: int
    steps: int


class Replica:
    """Runs jobs by priority, then in order of arrival; one that waits for its KV lets others pass.

    A job that comes with a better priority than the one that is being computed takes its place at
    the end of the chunk; what has been computed stays cached.

    Each iteration computes at most `chunk_tokens` of one prompt and one token of every running
    request. It takes the time of the chunk's compute and of reading the batch's KV; the weights'
    traffic hides behind the compute. Without a prefill it is a decode step: weights and KV.

    `ready` is asked before a job starts; it says whether its KV is all here that is worth waiting
    for, and may start to load it. `found`, `first_token` and `finished` are told what becomes of
    it: that its prompt need not be computed from a token on up to `done_tokens`, and so on.
    """

    def __init__(
        self,
        setup: Setup,
        cache: ReplicaCache,
        *,
        block_tokens: int,
        chunk_tokens: int,
        prefill_s: Callable[[int, int], float],
        ready: Callable[[Job], bool],
        found: Callable[[Job, int], None],
        first_token: Callable[[Job, float], None],
        finished: Callable[[Job, float], None],
    ) -> None:
        self._prefill_s = prefill_s
        self.cache = cache
        self._block_tokens = block_tokens
        self._chunk_tokens = chunk_tokens
        self._ready = ready
        self._found = found
        self._first_token = first_token
        self._finished = finished
        self._step_s = setup.decode_step_s(0.0)
        self._kv_token_s = setup.decode_step_s(1.0) - self._step_s
        self.waiting: list[Job] = []
        self.blocked = 0
        self.current: Job | None = None
        self._running: list[tuple[int, Job]] = []
        self._steps_done = 0
        self._context_tokens = 0
        self.step: Step | None = None
        self.queued_s = 0.0
        self.speculated_s = 0.0
        self.speculated_tokens = 0
        self._current_ends_s = 0.0
        self._line: tuple[list[float], list[float]] | None = None

    @property
    def load(self) -> int:
        """Requests waiting or running here."""
        return len(self.waiting) + self.blocked + len(self._running) + (self.current is not None)

    def backlog_s(self, now_s: float, priority: float | None = None) -> float:
        """Return the seconds of prefill ahead of a job that joined now, decoding aside.

        With a `priority`, only what would be served before it.
        """
        left_s = self._current_ends_s - now_s
        if left_s <= 0.0:
            left_s = 0.0
        if priority is None:
            return self.queued_s + left_s
        current = self.current
        if current is not None and current.priority > priority and self.step is not None:
            left_s = min(left_s, max(0.0, self.step.ends_s - now_s))
        if not self.waiting:
            return left_s
        priorities, until_s = self._line or self._line_up()
        return left_s + until_s[bisect_right(priorities, priority)]

    def behind(self, priority: float) -> int:
        """Return how many waiting jobs one with `priority` would overtake, or are blocked."""
        if not self.waiting:
            return self.blocked
        priorities, _ = self._line or self._line_up()
        return len(priorities) - bisect_right(priorities, priority) + self.blocked

    def _line_up(self) -> tuple[list[float], list[float]]:
        """Return the priorities of those that wait, and the work ahead of each and of one more."""
        priorities = [job.priority for job in self.waiting]
        until_s = [0.0, *accumulate(job.estimate_s for job in self.waiting)]
        self._line = priorities, until_s
        return self._line

    def computing(self, path: Path) -> int:
        """Return how many leading blocks of `path` will be here when the present step ends."""
        job = self.current
        if job is None or self.step is None:
            return 0
        shared = self._shared_blocks(job.path, path)
        return min(shared, (job.done_tokens + self.step.tokens) // self._block_tokens)

    def _shared_blocks(self, path: Path, other: Path) -> int:
        shared = 0
        for ours, theirs in zip(path, other, strict=False):
            if ours != theirs:
                break
            shared += self.cache.run_blocks(ours)
        return shared

    def join(self, job: Job, now_s: float) -> bool:
        """Queue `job`; return whether the replica's step changed."""
        self._line = None
        insort(self.waiting, job)
        self.queued_s += job.estimate_s
        return self.wake(now_s)

    def unblock(self, jobs: list[Job]) -> None:
        """Put back `jobs` that waited for KV. `wake` begins them."""
        self._line = None
        self.blocked -= len(jobs)
        for job in jobs:
            insort(self.waiting, job)

    def wake(self, now_s: float) -> bool:
        """Look for work: begin at once if idle, else end a run of decode steps at the next one."""
        if self.step is None:
            self._next(now_s)
            return self.step is not None
        if self.step.tokens or not self.waiting:
            return False
        steps = self._steps_begun(now_s - self.step.started_s)
        if steps >= self.step.steps:
            return False
        started_s = self.step.started_s
        self.step = Step(started_s, started_s + self._decode_s(steps), 0, steps)
        return True

    def end_step(self, now_s: float) -> None:
        """Take in what the step did, and begin the next one."""
        step = self.step
        assert step is not None
        self.step = None
        self._decoded(step.steps, now_s)
        if step.tokens:
            self._prefilled(step, now_s)
        self._next(now_s)

    def _next(self, now_s: float) -> None:
        self._choose(now_s)
        job = self.current
        if job is not None:
            self._take_in(job)
            tokens = min(self._chunk_tokens, job.input_tokens - job.done_tokens)
            took_s = self._prefill_s(tokens, job.done_tokens) * job.slowness
            took_s += self._kv_token_s * self._context_tokens
            steps = 1 if self._running else 0
            self.step = Step(now_s, now_s + took_s, tokens, steps)
        elif self._running:
            steps = self._running[0][0] - self._steps_done
            self.step = Step(now_s, now_s + self._decode_s(steps), 0, steps)

    def _take_in(self, job: Job) -> None:
        """Go on from where KV that came meanwhile ends."""
        here = min(self.cache.matched(job.path) * self._block_tokens, job.input_tokens - 1)
        if here > job.done_tokens:
            before, job.done_tokens = job.done_tokens, here
            self._found(job, before)

    def _choose(self, now_s: float) -> None:
        """Begin the first job that is ready, if it goes before the one that is being computed."""
        if len(self._running) >= MAX_BATCH:
            return
        while self.waiting and (
            self.current is None or self.waiting[0].priority < self.current.priority
        ):
            self._line = None
            job = self.waiting.pop(0)
            if not self._ready(job):
                self.blocked += 1
                continue
            if not self.cache.reserve(job.path, job.chain_blocks, job.extra_blocks, now_s=now_s):
                insort(self.waiting, job)
                return
            if self.current is not None:
                self._put_back(self.current, job)
            others = self.waiting or self.blocked
            self.queued_s = max(0.0, self.queued_s - job.estimate_s) if others else 0.0
            left_s = self._prefill_s(job.input_tokens - job.done_tokens, job.done_tokens)
            self._current_ends_s = now_s + left_s
            self.current = job
            if not job.begun:
                job.begun = True
                self._found(job, 0)

    def _put_back(self, job: Job, overtaken_by: Job) -> None:
        """Queue `job` again; what it shares with the one that overtakes it is computed by that."""
        self.cache.release(job.path, job.extra_blocks)
        job.loaded_by = -1  # what is evicted meanwhile may be loaded again
        shared = self._shared_blocks(job.path, overtaken_by.path)
        done_tokens = max(job.done_tokens, shared * self._block_tokens)
        done_tokens = min(done_tokens, job.input_tokens - 1)
        job.estimate_s = self._prefill_s(job.input_tokens - done_tokens, done_tokens)
        self.queued_s += job.estimate_s
        insort(self.waiting, job)

    def _prefilled(self, step: Step, now_s: float) -> None:
        job = self.current
        assert job is not None
        job.done_tokens += step.tokens
        origin = None
        if job.speculative:
            origin = SPECULATIVE
            self.speculated_s += step.ends_s - step.started_s
            self.speculated_tokens += step.tokens
        if job.done_tokens < job.input_tokens:
            self.cache.fill(job.path, job.done_tokens // self._block_tokens, origin)
            return
        self.cache.fill(job.path, job.chain_blocks, origin)
        self.current = None
        self._current_ends_s = now_s
        self._first_token(job, now_s)
        if job.output_tokens > 1:
            heappush(self._running, (self._steps_done + job.output_tokens - 1, job))
            self._context_tokens += job.input_tokens
        else:
            self._finish(job, now_s)

    def _decoded(self, steps: int, now_s: float) -> None:
        self._steps_done += steps
        self._context_tokens += steps * len(self._running)
        while self._running and self._running[0][0] <= self._steps_done:
            _, job = heappop(self._running)
            self._context_tokens -= job.input_tokens + job.output_tokens - 1
            self._finish(job, now_s)

    def _finish(self, job: Job, now_s: float) -> None:
        self.cache.release(job.path, job.extra_blocks)
        self._finished(job, now_s)

    def _decode_s(self, steps: int) -> float:
        batch = len(self._running)
        kv_tokens = steps * self._context_tokens + batch * steps * (steps - 1) / 2
        return self._step_s * steps + self._kv_token_s * kv_tokens

    def _steps_begun(self, elapsed_s: float) -> int:
        """Return the fewest whole steps that last `elapsed_s`: the root of `_decode_s`, rounded."""
        square = self._kv_token_s * len(self._running) / 2
        linear = self._step_s + self._kv_token_s * self._context_tokens - square
        if square <= 0.0:
            return max(1, ceil(elapsed_s / linear))
        root = (sqrt(linear * linear + 4 * square * elapsed_s) - linear) / (2 * square)
        return max(1, ceil(root - 1e-9))
