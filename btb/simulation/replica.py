"""One causal replica: a queue, one prefill in chunks, and a batch that decodes beside it."""

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, sqrt

from btb.simulation.runs import Path
from btb.simulation.setups import Setup
from btb.simulation.tiers import ReplicaCache

MAX_BATCH = 256
"""Requests that run together on one replica; vLLM's default for `max_num_seqs` on such GPUs."""


@dataclass(slots=True, eq=False)
class Job:
    """A request on its replica. `done_tokens` of its prompt are in HBM; `estimate_s` is queued."""

    index: int
    path: Path
    chain_blocks: int
    extra_blocks: int
    input_tokens: int
    output_tokens: int
    estimate_s: float
    done_tokens: int = 0
    loaded_by: int = -1

    def __lt__(self, other: "Job") -> bool:
        """Order by arrival."""
        return self.index < other.index


@dataclass(frozen=True, slots=True)
class Step:
    """What a replica does until `ends_s`: `tokens` of a prefill, or `steps` of decoding."""

    started_s: float
    ends_s: float
    tokens: int
    steps: int


class Replica:
    """Runs jobs in order of arrival; a job that waits for its KV lets the next one pass.

    Each iteration computes at most `chunk_tokens` of one prompt and one token of every running
    request. It takes the time of the chunk's compute and of reading the batch's KV; the weights'
    traffic hides behind the compute. Without a prefill it is a decode step: weights and KV.

    `ready` is asked before a job starts; it says whether its KV is all here that is worth waiting
    for, and may start to load it. `started`, `first_token` and `finished` are told what becomes of
    it.
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
        started: Callable[[Job], None],
        first_token: Callable[[Job, float], None],
        finished: Callable[[Job, float], None],
    ) -> None:
        self._prefill_s = prefill_s
        self.cache = cache
        self._block_tokens = block_tokens
        self._chunk_tokens = chunk_tokens
        self._ready = ready
        self._started = started
        self._first_token = first_token
        self._finished = finished
        self._step_s = setup.decode_step_s(0.0)
        self._kv_token_s = setup.decode_step_s(1.0) - self._step_s
        self.waiting: deque[Job] = deque()
        self.blocked = 0
        self.current: Job | None = None
        self._running: list[tuple[int, Job]] = []
        self._steps_done = 0
        self._context_tokens = 0
        self.step: Step | None = None
        self.queued_s = 0.0
        self._current_ends_s = 0.0

    @property
    def load(self) -> int:
        """Requests waiting or running here."""
        return len(self.waiting) + self.blocked + len(self._running) + (self.current is not None)

    def backlog_s(self, now_s: float) -> float:
        """Return the seconds of prefill ahead of a job that joined now, decoding aside."""
        left_s = self._current_ends_s - now_s
        return self.queued_s + left_s if left_s > 0.0 else self.queued_s

    def join(self, job: Job, now_s: float) -> bool:
        """Queue `job`; return whether the replica's step changed."""
        self.waiting.append(job)
        self.queued_s += job.estimate_s
        return self.wake(now_s)

    def unblock(self, jobs: list[Job]) -> None:
        """Put back `jobs` that waited for KV, in order of arrival. `wake` begins them."""
        if not jobs:
            return
        self.blocked -= len(jobs)
        queue = list(self.waiting)
        for job in jobs:
            insort(queue, job)
        self.waiting = deque(queue)

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
            self._prefilled(step.tokens, now_s)
        self._next(now_s)

    def _next(self, now_s: float) -> None:
        if self.current is None and self.waiting:
            self._start_a_job(now_s)
        job = self.current
        if job is not None:
            tokens = min(self._chunk_tokens, job.input_tokens - job.done_tokens)
            took_s = self._prefill_s(tokens, job.done_tokens)
            took_s += self._kv_token_s * self._context_tokens
            steps = 1 if self._running else 0
            self.step = Step(now_s, now_s + took_s, tokens, steps)
        elif self._running:
            steps = self._running[0][0] - self._steps_done
            self.step = Step(now_s, now_s + self._decode_s(steps), 0, steps)

    def _start_a_job(self, now_s: float) -> None:
        if len(self._running) >= MAX_BATCH:
            return
        while self.waiting:
            job = self.waiting.popleft()
            if not self._ready(job):
                self.blocked += 1
                continue
            if not self.cache.reserve(job.path, job.chain_blocks, job.extra_blocks):
                self.waiting.appendleft(job)
                return
            others = self.waiting or self.blocked
            self.queued_s = max(0.0, self.queued_s - job.estimate_s) if others else 0.0
            left_s = self._prefill_s(job.input_tokens - job.done_tokens, job.done_tokens)
            self._current_ends_s = now_s + left_s
            self.current = job
            self._started(job)
            return

    def _prefilled(self, tokens: int, now_s: float) -> None:
        job = self.current
        assert job is not None
        job.done_tokens += tokens
        if job.done_tokens < job.input_tokens:
            self.cache.fill(job.path, job.done_tokens // self._block_tokens)
            return
        self.cache.fill(job.path, job.chain_blocks)
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
