"""KV under way to each replica, by computing or by moving, and who waits for it."""

from collections.abc import Callable, Sequence
from math import inf

from btb.simulation.replica import Job, Replica
from btb.simulation.runs import Path
from btb.simulation.tiers import ReplicaCache
from btb.simulation.transfers import Moving, Transfers
from policies.base import Copy

NOTHING = (0, 0.0)
"""No blocks under way, in no time."""


class Deliveries:
    """Says what each replica will hold, and when; begins, sends on and ends transfers.

    `prefill_s` is the time to compute so many tokens after so many others.
    """

    def __init__(
        self,
        nodes: Sequence[Replica],
        transfers: Transfers,
        block_tokens: int,
        prefill_s: Callable[[int, int], float],
    ) -> None:
        self._nodes = nodes
        self._caches = [node.cache for node in nodes]
        self._transfers = transfers
        self._block_tokens = block_tokens
        self._prefill_s = prefill_s
        self._expected_s: list[dict[int, float]] = [{} for _ in nodes]
        self._unblocked: list[int] = []

    # What will be where.

    def pending(self, path: Path, limit: int, now_s: float) -> list[tuple[int, float]]:
        """Return for each replica how many blocks of `path` it will hold, and in how long."""
        if not path:
            return [NOTHING] * len(self._nodes)
        first = path[0]
        return [
            self._pending_at(number, path, limit, now_s)
            if first in expected or (expected and cache.valid[first])
            else NOTHING
            for number, (expected, cache) in enumerate(
                zip(self._expected_s, self._caches, strict=True)
            )
        ]

    def _pending_at(self, number: int, path: Path, limit: int, now_s: float) -> tuple[int, float]:
        expected, cache = self._expected_s[number], self._caches[number]
        if not expected:
            return NOTHING
        blocks, ready_s, any_expected = 0, now_s, False
        for run in path:
            if cache.valid[run] < cache.run_blocks(run):
                at_s = expected.get(run)
                if at_s is None:
                    break
                any_expected = True
                ready_s = max(ready_s, at_s)
            blocks += cache.run_blocks(run)
        return (min(blocks, limit), ready_s - now_s) if any_expected else NOTHING

    def expect(self, replica: int, path: Path) -> int:
        """Return how many leading blocks of `path` will be there when a job's turn comes."""
        cache, expected, count = self._nodes[replica].cache, self._expected_s[replica], 0
        for run in path:
            if cache.valid[run] < cache.run_blocks(run) and run not in expected:
                return count + cache.valid[run]
            count += cache.run_blocks(run)
        return count

    def will_compute(self, replica: int, path: Path, first_s: float, alone_s: float) -> None:
        """Take in that a job comes which will have computed `path` at `first_s`.

        What others are to compute before it is expected when they have; if it overtakes them, at
        `alone_s`.
        """
        cache, expected = self._caches[replica], self._expected_s[replica]
        for run in path:
            if cache.valid[run] < cache.run_blocks(run):
                ready_s = alone_s if run in expected else first_s
                expected[run] = min(ready_s, expected.get(run, ready_s))

    def computed(self, replica: int, path: Path, now_s: float) -> None:
        """Take in that a job has computed `path`: send it to who waits for it."""
        for run in path:
            self._expected_s[replica].pop(run, None)
        for moving in self._transfers.idle(replica):
            if moving.source == replica:
                self._go_on(moving, now_s)

    # Transfers.

    def start_copy(self, copy: Copy, path: Path, source: int, target: int, now_s: float) -> None:
        """Begin `copy` with what the source holds; what it will hold follows as it gets there.

        Nothing happens if the target holds or gets that much already, or has no room for it.
        """
        cache, holder = self._nodes[target].cache, self._nodes[source].cache
        in_hbm = holder.matched(path)
        blocks = min(copy.prefix.blocks, max(in_hbm, holder.stored(path)))
        ready_s = now_s
        coming, wait_s = self._pending_at(source, path, copy.prefix.blocks, now_s)
        if source == target:  # a load from its own RAM or disk
            coming = 0
        if coming > blocks:
            blocks, ready_s = coming, now_s + wait_s
        inbound = self._transfers.inbound(target, path)
        already = self._transfers.brings(inbound, path) if inbound else 0
        if blocks <= max(cache.matched(path), already):
            return
        tier = "hbm"
        if coming < blocks and in_hbm < blocks:
            tier = slowest_tier(holder, path, blocks)
        moving = self._transfers.plan(source, target, tier, path, blocks, ready_s, copy)
        self._expect_transfer(moving, now_s)
        if coming < blocks:
            self._begin(moving, blocks, now_s)
        else:
            self._go_on(moving, now_s)

    def _expect_transfer(self, moving: Moving, now_s: float) -> None:
        ends_s = self._transfers.ends_s(moving, now_s)
        expected = self._expected_s[moving.target]
        for run in moving.path:
            expected[run] = min(ends_s, expected.get(run, ends_s))

    def _begin(self, moving: Moving, upto: int, now_s: float) -> bool:
        """Move the first `upto` blocks; if there is no room for them, its jobs go on without."""
        if self._transfers.begin(moving, upto, now_s):
            return True
        self._forget(moving)
        for other in self._transfers.idle(moving.target):
            self._go_on(other, now_s)
        return False

    def _go_on(self, moving: Moving, now_s: float) -> None:
        """Move what the source has by now and the target lacks; end it if no more is to come."""
        if moving.flow is not None or moving.ended_s < inf:
            return
        source, target = self._nodes[moving.source], self._nodes[moving.target]
        there = target.cache.matched(moving.path)
        if moving.upto <= there < moving.blocks:
            upto = min(source.cache.matched(moving.path), moving.blocks)
            if upto > max(there, target.computing(moving.path)):
                self._begin(moving, upto, now_s)
                return
            coming, _ = self._pending_at(moving.source, moving.path, moving.blocks, now_s)
            if max(upto, coming) >= moving.blocks:
                return
        self._transfers.end(moving, now_s)
        self._forget(moving)

    def _forget(self, moving: Moving) -> None:
        for run in moving.path:
            self._expected_s[moving.target].pop(run, None)
        self._unblocked.append(moving.target)
        self._nodes[moving.target].unblock(moving.waiting)
        moving.waiting = []

    def follow_up(self, replica: int, now_s: float) -> list[int]:
        """Send on what has got to `replica`; return the replicas whose step changed."""
        for moving in self._transfers.idle(replica):
            self._go_on(moving, now_s)
        woken, self._unblocked = self._unblocked, []
        return [number for number in woken if self._nodes[number].wake(now_s)]

    def land(self, now_s: float) -> list[int]:
        """Let the transfers land that have come; return the replicas whose step changed."""
        changed = []
        for moving in self._transfers.land(now_s):
            if moving.ended_s < inf:
                self._forget(moving)
            self._unblocked.append(moving.source)  # what it pinned there may have been in the way
            changed += self.follow_up(moving.target, now_s)
            if moving.ended_s == inf:
                ends_s = self._transfers.ends_s(moving, now_s)
                self._caches[moving.target].keep(moving.path, ends_s, now_s)
                changed += self.follow_up(moving.source, now_s)
        return changed

    def is_ready(self, number: int, job: Job, now_s: float) -> bool:
        """Whether `job` can start now: no KV is on its way, or could be, that is worth a wait."""
        cache = self._nodes[number].cache
        have = cache.matched(job.path)
        job.done_tokens = min(have * self._block_tokens, job.input_tokens - 1)
        moving = self._transfers.inbound(number, job.path)
        if moving is not None and self._transfers.brings(moving, job.path) > have:
            gain_s = self._compute_s(job, have, self._transfers.brings(moving, job.path))
            wait_s = self._transfers.ends_s(moving, now_s) - now_s
            if wait_s < 2 * gain_s and not self._waits_for_itself(number, moving):
                moving.waiting.append(job)
                return False
        return not self._load(number, job, have, now_s)

    def _waits_for_itself(self, number: int, moving: Moving) -> bool:
        """Whether what `moving` brings is, by way of others, to come from replica `number`."""
        seen = set()
        while moving.flow is None and moving.source not in seen:
            if moving.source == number:
                return True
            seen.add(moving.source)
            before = self._transfers.inbound(moving.source, moving.path)
            if before is None:
                return False
            moving = before
        return False

    def _compute_s(self, job: Job, have: int, blocks: int) -> float:
        context = have * self._block_tokens
        tokens = min(blocks * self._block_tokens, job.input_tokens) - context
        return self._prefill_s(max(0, tokens), context)

    def _load(self, number: int, job: Job, have: int, now_s: float) -> bool:
        """Begin to load what the replica's own RAM or disk holds of `job`, if that is quicker."""
        cache = self._nodes[number].cache
        stored = cache.stored(job.path)
        if stored <= have or job.loaded_by >= 0:
            return False
        tier = slowest_tier(cache, job.path, stored)
        load_s = self._transfers.blocks_s(number, tier, stored - have)
        if load_s >= self._compute_s(job, have, stored):
            return False
        moving = self._transfers.plan(number, number, tier, job.path, stored, now_s)
        self._expect_transfer(moving, now_s)
        if not self._begin(moving, stored, now_s):
            return False
        job.loaded_by = moving.number
        moving.waiting.append(job)
        return True


def slowest_tier(cache: ReplicaCache, path: Path, limit: int) -> str:
    """Return the slowest of the tiers that hold a part of the first `limit` blocks."""
    stored = min(cache.stored(path), limit)
    return "ram" if cache.stored_in_ram(path) >= stored else "disk"
