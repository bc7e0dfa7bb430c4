"""What a router remembers of where it sent which prefix."""

from collections.abc import Sequence

Chain = tuple[int, ...]


class RoutedPrefixes:
    """For each block hash, the set of replicas that a request with it was sent to.

    A set is a bit mask by replica number. Because a hash stands for all blocks before it too, the
    longest known prefix is a binary search. Two generations of at most half of `max_blocks` each
    bound the memory: when the young one is full it becomes the old one, and what is not routed
    again by the time the next one is full is forgotten.
    """

    def __init__(self, max_blocks: int = 2_000_000) -> None:
        self._max_young = max_blocks // 2
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}
        self._bits: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of blocks remembered, at most `max_blocks`."""
        return len(self._young) + len(self._old)

    def longest(self, chain: Chain, names: Sequence[str]) -> tuple[int, list[int]]:
        """Return the longest known prefix of `chain` in blocks, and which of `names` got it."""
        young, old = self._young, self._old
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high) // 2
            if chain[middle] in young or chain[middle] in old:
                low = middle + 1
            else:
                high = middle
        while low:
            mask = young.get(chain[low - 1], 0) | old.get(chain[low - 1], 0)
            holders = [i for i, name in enumerate(names) if mask & self._bits.get(name, 0)]
            if holders:
                return low, holders
            low -= 1  # only replicas that are gone got this far
        return 0, []

    def add(self, chain: Chain, name: str) -> None:
        """Remember that a request with `chain` was sent to the replica `name`."""
        bit = self._bits.setdefault(name, 1 << len(self._bits))
        young = self._young
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high) // 2
            if young.get(chain[middle], 0) & bit:
                low = middle + 1
            else:
                high = middle
        for block in chain[low:]:
            young[block] = young.get(block, 0) | bit
        if len(young) > self._max_young:
            self._old, self._young = young, {}
