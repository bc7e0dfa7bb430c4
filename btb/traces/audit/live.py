"""The prefixes that may still matter, so that memory does not grow with the length of a trace."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Kept = TypeVar("Kept")

LOOK_EVERY = 4_096
"""Arrivals between two looks for quiet prefixes, at least."""


class Live(dict[int, Kept], Generic[Kept]):
    """What is kept of each prefix, by its key. Quiet ones are handed back from time to time.

    Parameters
    ----------
    last_s
        Returns the time of the latest arrival in what is kept.
    quiet_s
        A prefix without an arrival for longer than this no longer matters.
    """

    def __init__(self, last_s: Callable[[Kept], float], quiet_s: float) -> None:
        super().__init__()
        self._last_s = last_s
        self._quiet_s = quiet_s
        self._until_look = LOOK_EVERY

    def take_quiet(self, now_s: float) -> Sequence[tuple[int, Kept]]:
        """Remove and return quiet prefixes; to be called once an arrival, mostly returns none.

        A look costs as much as there are prefixes, and comes no more often than that many
        arrivals: so at most half of what is kept is quiet, and the cost an arrival is constant.
        """
        self._until_look -= 1
        if self._until_look > 0:
            return ()
        since_s = now_s - self._quiet_s
        quiet = [(key, kept) for key, kept in self.items() if self._last_s(kept) < since_s]
        for key, _ in quiet:
            del self[key]
        self._until_look = max(LOOK_EVERY, len(self))
        return quiet
