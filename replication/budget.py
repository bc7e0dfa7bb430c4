"""Who may use a link next: the copy that is worth most a byte, at a rate that leaves room."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf

Link = tuple[str, str]
"""A replica and a direction, "out" or "in"."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A chunk that waits to use some links, all of them at once."""

    links: tuple[Link, ...]
    size_bytes: int
    worth: float


class Budget:
    """Shares links out, chunk by chunk. Reads no clock.

    A link with a rate is taken for `size_bytes / rate` by each chunk; a link without one is always
    free. While a chunk waits, nothing that is worth less gets one of its links, so that it waits
    for the chunks under way and no longer. Equal ones go in the order in which they asked.

    Parameters
    ----------
    rates_bytes_s
        Bytes a second by link.

    Raises
    ------
    ValueError
        If a rate isn't positive.
    """

    def __init__(self, rates_bytes_s: Mapping[Link, float]) -> None:
        for link, rate in rates_bytes_s.items():
            if not rate > 0.0:
                raise ValueError(f"the rate of {link} must be positive, got {rate}")
        self._rates_bytes_s = dict(rates_bytes_s)
        self._free_s: dict[Link, float] = dict.fromkeys(rates_bytes_s, -inf)
        self._waiting: list[Ask] = []

    def ask(self, links: Collection[Link], size_bytes: int, worth: float) -> Ask:
        """Get in line."""
        limited = tuple(link for link in links if link in self._rates_bytes_s)
        ask = Ask(limited, size_bytes, worth)
        self._waiting.append(ask)
        self._waiting.sort(key=lambda one: -one.worth)
        return ask

    def withdraw(self, ask: Ask) -> None:
        """Get out of line. What has been granted stays granted."""
        if ask in self._waiting:
            self._waiting.remove(ask)

    def grant(self, now_s: float) -> list[Ask]:
        """Return what may go at `now_s`, worthiest first; its links are taken then."""
        granted, left = [], []
        wanted: set[Link] = set()
        for ask in self._waiting:
            if wanted.isdisjoint(ask.links) and self._ready_s(ask) <= now_s:
                for link in ask.links:
                    self._free_s[link] = now_s + ask.size_bytes / self._rates_bytes_s[link]
                granted.append(ask)
            else:
                wanted.update(ask.links)
                left.append(ask)
        self._waiting = left
        return granted

    def next_s(self) -> float:
        """Return when something that waits can go; infinite if nothing waits."""
        soonest_s = inf
        wanted: set[Link] = set()
        for ask in self._waiting:
            if wanted.isdisjoint(ask.links):
                soonest_s = min(soonest_s, self._ready_s(ask))
            wanted.update(ask.links)
        return soonest_s

    def _ready_s(self, ask: Ask) -> float:
        return max((self._free_s[link] for link in ask.links), default=-inf)
