"""Which runs a cache lets go last, and until when."""

from collections.abc import Sequence

from btb.simulation.runs import Path


class Kept:
    """Runs that are evicted after all others, until a time each; of a limited number of blocks.

    Nobody's request is refused for their sake: where nothing else is left, they go too.
    """

    def __init__(self, blocks: Sequence[int], limit_blocks: int) -> None:
        self._blocks = blocks
        self._limit = limit_blocks
        self._until_s: dict[int, float] = {}
        self._used = 0

    def add(self, path: Path, until_s: float, now_s: float) -> None:
        """Keep the runs of `path`, root first, as far as there is room for them."""
        for run in path:
            if run not in self._until_s:
                size = self._blocks[run]
                if self._used + size > self._limit:
                    self._drop_ended(now_s)
                if self._used + size > self._limit:
                    return
                self._used += size
                self._until_s[run] = until_s
            elif self._until_s[run] < until_s:
                self._until_s[run] = until_s

    def holds(self, run: int, now_s: float) -> bool:
        """Whether `run` is kept at `now_s`."""
        return self._until_s.get(run, now_s) > now_s

    def _drop_ended(self, now_s: float) -> None:
        for run in [run for run in self._until_s if not self.holds(run, now_s)]:
            del self._until_s[run]
            self._used -= self._blocks[run]
