"""What follows from the hashes of a chain being cumulative."""

from collections.abc import Container, Sequence


def known_blocks(chain: Sequence[int], known: Container[int]) -> int:
    """Return how many leading blocks of `chain` are in `known`, by a binary search.

    A hash stands for all blocks before it too: where one is known, all before it are. Often all
    but the last block is, so that is looked at first.

    >>> known_blocks([5, 6, 7, 8], {5, 6})
    2
    """
    low, high = 0, len(chain)
    if high > 1 and chain[-2] in known:
        low = high - 1
    while low < high:
        middle = (low + high) // 2
        if chain[middle] in known:
            low = middle + 1
        else:
            high = middle
    return low
