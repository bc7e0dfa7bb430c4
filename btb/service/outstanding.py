"""Requests that were routed and have not ended."""

from collections import OrderedDict
from collections.abc import Callable

from btb.service.replica import Placement

Key = tuple[str, str]
"""Tenant and request id: two tenants may use the same ids."""


class Outstanding:
    """Placements by tenant and request id, at most `limit`, for at most `timeout_s` each.

    A placement that is let go of stops counting on its replica; `released` is told why: `finished`,
    `replaced` by another with its id, `crowded_out` by newer ones, or `timeout`.
    """

    def __init__(self, limit: int, timeout_s: float, released: Callable[[str], None]) -> None:
        self._limit = limit
        self._timeout_s = timeout_s
        self._released = released
        self._placements: OrderedDict[Key, Placement] = OrderedDict()

    def __len__(self) -> int:
        return len(self._placements)

    def find(self, key: Key) -> Placement | None:
        """Return the placement of `key`, or None."""
        return self._placements.get(key)

    def add(self, key: Key, placement: Placement) -> None:
        """Keep a placement. One that has the same key is let go of: its request came again."""
        if key in self._placements:
            self.release(key, "replaced")
        self._placements[key] = placement
        if len(self._placements) > self._limit:
            self.release(next(iter(self._placements)), "crowded_out")

    def release(self, key: Key, cause: str) -> None:
        """Let go of the placement of `key`, which must be there."""
        placement = self._placements.pop(key)
        placement.replica.end(placement)
        self._released(cause)

    def expire(self, now_s: float) -> None:
        """Let go of all that were placed longer ago than the timeout."""
        while self._placements:
            key, oldest = next(iter(self._placements.items()))
            if oldest.placed_s + self._timeout_s >= now_s:
                return
            self.release(key, "timeout")
