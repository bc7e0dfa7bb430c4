"""What one replica holds: HBM shared by cached and running KV, and RAM and disk below it."""

from collections import OrderedDict
from collections.abc import Sequence

from btb.simulation.kept import Kept
from btb.simulation.runs import Path

KEPT_SHARE = 0.5
"""Most of HBM that can be kept for what is expected; the rest is for what comes."""


class LowerTier:
    """RAM or disk: of each run a stretch [low, high) of blocks, the longest unused dropped first.

    What HBM evicts comes here and stays when HBM takes it back. What this tier drops goes to
    `below`, if there is one. Writing to it costs no time: it goes the other way over the host link.
    """

    def __init__(self, capacity_blocks: int, below: "LowerTier | None" = None) -> None:
        self._capacity = capacity_blocks
        self._below = below
        self._used = 0
        self._held: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def __contains__(self, run: int) -> bool:
        """Whether anything of `run` is here."""
        return run in self._held

    def high(self, run: int, start: int) -> int:
        """Return up to which block of `run` this tier continues a part that ends at `start`."""
        low, high = self._held.get(run, (0, 0))
        return high if low <= start < high else start

    def put(self, run: int, low: int, high: int) -> None:
        """Take in blocks [low, high) of `run`; they join what is here of it if they touch."""
        if self._capacity <= 0:
            if self._below is not None:
                self._below.put(run, low, high)
            return
        old = self._held.pop(run, None)
        if old is not None:
            self._used -= old[1] - old[0]
            if old[0] <= high and low <= old[1]:
                low, high = min(low, old[0]), max(high, old[1])
        self._held[run] = (low, high)
        self._used += high - low
        self._shrink()

    def touch(self, run: int) -> None:
        """Count `run` as used now."""
        if run in self._held:
            self._held.move_to_end(run)

    def _shrink(self) -> None:
        while self._used > self._capacity:
            run, (low, high) = self._held.popitem(last=False)
            cut = max(low, high - (self._used - self._capacity))
            self._used -= high - cut
            if cut > low:
                self._held[run] = (low, cut)
                self._held.move_to_end(run, last=False)
            if self._below is not None:
                self._below.put(run, cut, high)


class ReplicaCache:
    """The KV memory of one replica, in blocks, kept by runs.

    Of each run the first `valid[run]` blocks can be used; `_alloc[run]` have a place, those past
    `valid` are being computed or received. Runs that somebody uses are pinned. The rest are in
    `_lru`, where a run always comes before its parents, so that a prefix loses its tail first, as
    in vLLM's free queue.
    """

    def __init__(
        self, blocks: Sequence[int], hbm_blocks: int, ram_blocks: int, disk_blocks: int
    ) -> None:
        self._blocks = blocks
        self.capacity_blocks = hbm_blocks
        self.disk = LowerTier(disk_blocks)
        self.ram = LowerTier(ram_blocks, self.disk)
        self.valid = [0] * len(blocks)
        self._alloc = [0] * len(blocks)
        self._pins = [0] * len(blocks)
        self._lru: OrderedDict[int, None] = OrderedDict()
        self._kept = Kept(blocks, int(KEPT_SHARE * hbm_blocks))
        self._evictable = 0
        self.used_blocks = 0
        self.origin: dict[int, int] = {}
        """The transfer that brought a run, until the run is evicted."""

    def run_blocks(self, run: int) -> int:
        """Return the length of `run`."""
        return self._blocks[run]

    @property
    def free_blocks(self) -> int:
        """Blocks that nothing holds."""
        return self.capacity_blocks - self.used_blocks

    def holds(self, run: int) -> bool:
        """Whether anything of `run` is in HBM, RAM or on disk."""
        return bool(self.valid[run]) or run in self.ram or run in self.disk

    def matched(self, path: Path) -> int:
        """Return how many leading blocks of `path` are in HBM, ready to be used."""
        valid, blocks, count = self.valid, self._blocks, 0
        for run in path:
            here = valid[run]
            count += here
            if here < blocks[run]:
                break
        return count

    def stored(self, path: Path) -> int:
        """Return how many leading blocks of `path` are in HBM, RAM or on disk."""
        return self._continued(path, (self.ram, self.disk))

    def stored_in_ram(self, path: Path) -> int:
        """Return how many leading blocks of `path` are in HBM or RAM."""
        return self._continued(path, (self.ram,))

    def _continued(self, path: Path, tiers: Sequence[LowerTier]) -> int:
        count = 0
        for run in path:
            here = self.valid[run]
            for tier in tiers:
                here = tier.high(run, here)
            count += here
            if here < self._blocks[run]:
                break
        return count

    def reserve(self, path: Path, upto_blocks: int, extra_blocks: int = 0, *, now_s: float) -> bool:
        """Pin `path` and give its first `upto_blocks` a place, and `extra_blocks` beside them.

        Evicts what is not kept at `now_s`, then what is; of both what has been unused for longest.
        Returns False, and changes nothing, if that is not enough.
        """
        missing, left = extra_blocks, upto_blocks
        for run in path:
            want = min(left, self._blocks[run])
            missing += max(0, want - self._alloc[run])
            left -= want
        pinned = sum(self._alloc[run] for run in path if run in self._lru)
        if missing > self.free_blocks + self._evictable - pinned:
            return False
        self._pin(path)
        if missing > self.free_blocks:
            self._evict(missing - self.free_blocks, now_s)
        self.used_blocks += missing
        left = upto_blocks
        for run in path:
            want = min(left, self._blocks[run])
            self._alloc[run] = max(self._alloc[run], want)
            left -= want
        return True

    def fill(self, path: Path, blocks: int, origin: int | None = None) -> None:
        """Make the first `blocks` of a reserved `path` usable; transfer `origin` brought them."""
        for run in path:
            here = min(blocks, self._blocks[run])
            if here > self.valid[run]:
                self.valid[run] = here
                if origin is not None:
                    self.origin[run] = origin
            blocks -= here
            if not blocks:
                break

    def release(self, path: Path, extra_blocks: int = 0) -> None:
        """Unpin `path` and give back `extra_blocks`; what was never filled loses its place."""
        self.used_blocks -= extra_blocks
        for run in reversed(path):
            self._pins[run] -= 1
            if self._pins[run]:
                continue
            valid = self.valid[run]
            self.used_blocks -= self._alloc[run] - valid
            self._alloc[run] = valid
            if valid:
                self._lru[run] = None
                self._evictable += valid

    def _pin(self, path: Path) -> None:
        for run in path:
            self._pins[run] += 1
            if run in self._lru:
                del self._lru[run]
                self._evictable -= self.valid[run]

    def pin(self, path: Path) -> None:
        """Keep what is there of `path` from being evicted, until `release`."""
        self._pin(path)

    def keep(self, path: Path, until_s: float, now_s: float) -> None:
        """Let `path` go after all else until `until_s`."""
        self._kept.add(path, until_s, now_s)

    def _evict(self, count: int, now_s: float) -> None:
        self.used_blocks -= count
        self._evictable -= count
        for run, cut in self._victims(count, now_s):
            valid = self.valid[run]
            self.valid[run] = self._alloc[run] = cut
            self.ram.put(run, cut, valid)
            if not cut:
                del self._lru[run]
                self.origin.pop(run, None)

    def _victims(self, count: int, now_s: float) -> list[tuple[int, int]]:
        """Return the runs that make room for `count` blocks, and what is left of each."""
        found = []
        for kept in (False, True):
            for run in self._lru:
                if self._kept.holds(run, now_s) != kept:
                    continue
                cut = max(0, self.valid[run] - count)
                count -= self.valid[run] - cut
                found.append((run, cut))
                if not count:
                    return found
        raise AssertionError(f"{count} blocks short: more was promised than can be evicted")
