"""One replica of the article's engine: its clock, its queue, its batch, and its caches."""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from btb.simulation.runs import Path

MAX_BATCH = 256
"""Requests that decode together on one replica."""


@dataclass(slots=True, eq=False)
class Running:
    """A request that decodes: `tokens` of KV reserved for it, `left` tokens still to come."""

    index: int
    tokens: int
    left: int


class ArticleReplica:
    """Serves one request at a time up to its first token, then decodes it in a batch.

    Of run r, blocks [0, in_ram[r]) are in RAM and [in_ram[r], held[r]) in HBM: HBM's least
    recently used run is evicted from its head.

    Parameters
    ----------
    blocks
        Length of each run.
    hbm_blocks
        Blocks that the cache may hold in HBM.
    step_s, kv_token_s
        Seconds of a decode step for the weights, and for each token of context.
    admit
        Called with the replica and the next request; begins it, or says False if there is no room.
    finished
        Called with a request and the time when its last token came.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        hbm_blocks: int,
        step_s: float,
        kv_token_s: float,
        admit: Callable[["ArticleReplica", int], bool],
        finished: Callable[[Running, float], None],
    ) -> None:
        self._blocks = blocks
        self._hbm_blocks = hbm_blocks
        self._step_s = step_s
        self._kv_token_s = kv_token_s
        self._admit = admit
        self._finished = finished
        self.now_s = 0.0
        self.waiting: deque[int] = deque()
        self.running: list[Running] = []
        self.batch_tokens = 0
        self.context_tokens = 0
        self.used_blocks = 0
        self.held = [0] * len(blocks)
        self.in_ram = [0] * len(blocks)
        self._lru: OrderedDict[int, None] = OrderedDict()

    @property
    def free_blocks(self) -> int:
        """Blocks of HBM that no cached block holds."""
        return self._hbm_blocks - self.used_blocks

    def matched(self, path: Path) -> tuple[int, int]:
        """Return how many leading blocks of `path` are held, and how many of them in RAM."""
        blocks, held, in_ram = self._blocks, self.held, self.in_ram
        count = ram_count = 0
        for run in path:
            here = held[run]
            count += here
            ram_count += in_ram[run]
            if here < blocks[run]:
                break
        return count, ram_count

    def hold(self, run: int, blocks: int) -> None:
        """Put the first `blocks` of `run` into HBM, as the most recently used."""
        before, in_ram = self.held[run], self.in_ram[run]
        after = blocks if blocks > before else before
        self.used_blocks += after - before + in_ram
        self.held[run] = after
        if in_ram:
            self.in_ram[run] = 0
        if run in self._lru:
            self._lru.move_to_end(run)
        else:
            self._lru[run] = None

    def evict(self) -> None:
        """Move to RAM what HBM has no room for."""
        over = self.used_blocks - self._hbm_blocks
        lru, held, in_ram = self._lru, self.held, self.in_ram
        while over > 0:
            run = next(iter(lru))
            here = held[run] - in_ram[run]
            if here <= over:
                del lru[run]
                in_ram[run] = held[run]
            else:
                here = over
                in_ram[run] += over
            self.used_blocks -= here
            over -= here

    def advance(self, until_s: float | None) -> None:
        """Run up to `until_s`, or dry; what has begun is not interrupted."""
        waiting = self.waiting
        while True:
            while waiting and len(self.running) < MAX_BATCH and self._admit(self, waiting[0]):
                waiting.popleft()
            if until_s is not None and self.now_s >= until_s:
                return
            if not self.running:
                if until_s is not None and self.now_s < until_s:
                    self.now_s = until_s
                return
            self._decode(until_s)

    def _decode(self, until_s: float | None) -> None:
        """Decode to the next completion, or to the last whole step before `until_s`."""
        steps = min([running.left for running in self.running])
        took_s = self._decode_s(steps)
        if until_s is not None and steps > 1 and took_s > until_s - self.now_s:
            steps = self._steps_within(until_s - self.now_s, steps)
            took_s = self._decode_s(steps)
        self.now_s += took_s
        self.context_tokens += steps * len(self.running)
        still = []
        for running in self.running:
            running.left -= steps
            if running.left:
                still.append(running)
            else:
                self.batch_tokens -= running.tokens
                self.context_tokens -= running.tokens
                self._finished(running, self.now_s)
        self.running = still

    def _steps_within(self, limit_s: float, steps: int) -> int:
        """Return the most steps that fit into `limit_s`, but at least one and at most `steps`."""
        low, high = 1, steps
        while low < high:
            middle = (low + high + 1) // 2
            if self._decode_s(middle) <= limit_s:
                low = middle
            else:
                high = middle - 1
        return low

    def _decode_s(self, steps: int) -> float:
        batch = len(self.running)
        kv_tokens = steps * self.context_tokens + batch * steps * (steps - 1) / 2
        return self._step_s * steps + self._kv_token_s * kv_tokens
