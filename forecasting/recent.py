"""Maps that forget: whatever is kept by name has a bound, and what was used last stays."""

from collections import OrderedDict
from collections.abc import Callable, ItemsView
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class RecentMap(Generic[Key, Value]):
    """A mapping of at most `limit` entries, of which the least recently used goes first.

    Parameters
    ----------
    limit
        Most entries kept, at least one.

    Attributes
    ----------
    forgotten
        Entries that had to go so far.

    Raises
    ------
    ValueError
        If `limit` is below 1.

    Examples
    --------
    >>> recent = RecentMap[str, int](limit=2)
    >>> for name in ["a", "b", "a", "c"]:
    ...     _ = recent.use(name, int)
    >>> [name for name, _ in recent.items()], recent.forgotten
    (['a', 'c'], 1)
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit!r}")
        self.forgotten = 0
        self._limit = limit
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def use(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the entry of `key`, made by `make` where there is none; it is now the newest."""
        entries = self._entries
        if key in entries:
            entries.move_to_end(key)
            return entries[key]
        value = entries[key] = make()
        if len(entries) > self._limit:
            entries.popitem(last=False)
            self.forgotten += 1
        return value

    def peek(self, key: Key) -> Value | None:
        """Return the entry of `key`, or None; the order of use stays as it is."""
        return self._entries.get(key)

    def items(self) -> ItemsView[Key, Value]:
        """Return what is kept, least recently used first."""
        return self._entries.items()
