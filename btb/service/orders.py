"""Copies that were ordered and have not been reported done."""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from policies.base import Copy

OPEN_S = 60.0
"""How long a copy stays open: the longest horizon of a forecast. Its deadline doesn't close it: a
copy that came too late for one request is there for the next."""

MAX_OPEN = 10_000
"""Copies open at a time; the oldest is given up past this."""


@dataclass(frozen=True, slots=True)
class Order:
    """One copy that somebody was asked to make, until `until_s`."""

    copy_id: str
    copy: Copy
    block_tokens: int
    until_s: float


class Orders:
    """Remembers which copies are open, so that none is ordered twice.

    The service moves nothing itself: whoever asked for the route carries its copies out and says
    so. Until then a copy does not count as on its way, for perhaps nobody makes it.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[str, Order] = OrderedDict()
        self._pairs: dict[tuple[int, str], str] = {}
        self._out: Counter[str] = Counter()
        self._into: Counter[str] = Counter()
        self._made = 0

    def __len__(self) -> int:
        return len(self._open)

    def place(self, copies: Iterable[Copy], now_s: float, block_tokens: int) -> list[Order]:
        """Open those of `copies` that are not open yet, and return them."""
        placed = []
        for copy in copies:
            known = self._open.get(self._pairs.get((copy.prefix.key, copy.target), ""))
            if known is not None and known.until_s >= now_s:
                continue
            if known is not None:
                self.close(known.copy_id)
            placed.append(self._place(copy, now_s, block_tokens))
        while len(self._open) > MAX_OPEN:
            self.close(next(iter(self._open)))
        return placed

    def _place(self, copy: Copy, now_s: float, block_tokens: int) -> Order:
        self._made += 1
        order = Order(f"c{self._made}", copy, block_tokens, now_s + OPEN_S)
        self._open[order.copy_id] = order
        self._pairs[copy.prefix.key, copy.target] = order.copy_id
        self._out[copy.source] += 1
        self._into[copy.target] += 1
        return order

    def close(self, copy_id: str) -> Order | None:
        """Return the open copy called `copy_id`, which is open no more, or None."""
        order = self._open.pop(copy_id, None)
        if order is not None:
            copy = order.copy
            del self._pairs[copy.prefix.key, copy.target]
            for counter, name in ((self._out, copy.source), (self._into, copy.target)):
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]
        return order

    def expire(self, now_s: float) -> int:
        """Close the copies whose time is over; return how many."""
        over = [one.copy_id for one in self._open.values() if one.until_s < now_s]
        for copy_id in over:
            self.close(copy_id)
        return len(over)

    def forget_replica(self, name: str) -> None:
        """Close all copies from or to the replica `name`."""
        ends = [
            one.copy_id for one in self._open.values() if name in (one.copy.source, one.copy.target)
        ]
        for copy_id in ends:
            self.close(copy_id)

    def beside(self, source: str, target: str) -> int:
        """Return how many open copies share the way out of `source` or the way into `target`."""
        return max(self._out[source], self._into[target])
