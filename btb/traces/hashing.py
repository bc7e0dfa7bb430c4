"""Chains of block hashes: equal hash means equal prefix, of the same tenant and model.

XXH3 in 64 bits: fast, and with n distinct prefixes two of them meet by chance with a probability of
about n² / 2⁶⁵ (1 in 37 million for a million). It is no defence against somebody who makes
collisions on purpose; that a tenant's hashes begin with the tenant's own root keeps such a person
among his own prefixes.
"""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from xxhash import xxh3_64_intdigest

CHARS_A_TOKEN = 4
"""Characters taken for one token where a trace has text only: an assumption, fair for English."""

_PAIR = Struct("<QQ").pack


def root(
    block_tokens: int, *, tenant: str = "", model: str = "", lora: str = "", scope: str = ""
) -> int:
    """Return the hash that a chain starts from.

    Each part goes in with its length before it, so no two different sets of parts look alike.
    `scope` is the session where a trace's ids mean something inside one session only.

    >>> root(16, tenant="ab", model="c") == root(16, tenant="a", model="bc")
    False
    """
    framed = b"".join(
        b"%d:%b" % (len(part), part)
        for part in (
            name.encode("utf-8", "surrogatepass")
            for name in (str(block_tokens), tenant, model, lora, scope)
        )
    )
    return xxh3_64_intdigest(framed)


def chained(blocks: Iterable[int], parent: int) -> tuple[int, ...]:
    """Return the cumulative hashes of `blocks`, 64-bit ids, after the prefix named `parent`.

    Ids that name one block each become hashes of whole prefixes. Ids that do so already may be
    chained again: what was equal stays equal, and nothing else becomes so.

    >>> start = root(16)
    >>> chained([7, 8], start)[:1] == chained([7, 9], start)[:1]
    True
    >>> chained([7, 8], start)[1:] == chained([9, 8], start)[1:]
    False
    """
    hashes = []
    for block in blocks:
        parent = xxh3_64_intdigest(_PAIR(parent, block))
        hashes.append(parent)
    return tuple(hashes)


def shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many leading ids are the same in both.

    >>> shared([1, 2, 3], [1, 2, 4, 5]), shared([], [1])
    (2, 0)
    """
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


class Chainer:
    """Chains one list of ids after another, and hashes only what the last one did not have.

    An agent sends its whole context with each call, so this is a fraction of all blocks.
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._ids: list[int] = []
        self._chain: tuple[int, ...] = ()

    def chain(self, ids: list[int]) -> tuple[int, ...]:
        """Return what `chained(ids, start)` would."""
        keep = shared(ids, self._ids)
        kept = self._chain[:keep]
        self._chain = kept + chained(ids[keep:], kept[-1] if kept else self._start)
        self._ids = ids
        return self._chain


def text_blocks(content: str, block_tokens: int) -> Iterator[int]:
    """Yield a hash of each whole piece of `content`, `block_tokens` × `CHARS_A_TOKEN` long.

    Pieces are cut by characters, so two texts share their leading pieces exactly as far as they are
    equal. What is left over at the end is no whole block, and nobody could share it.
    """
    size = block_tokens * CHARS_A_TOKEN
    for start in range(0, len(content) - size + 1, size):
        yield xxh3_64_intdigest(content[start : start + size].encode("utf-8", "surrogatepass"))


def text_tokens(content: str) -> int:
    """Return how many tokens `content` is taken for, rounded down, but at least one.

    >>> text_tokens("abc"), text_tokens("abcdefg"), text_tokens("abcdefgh")
    (1, 1, 2)
    """
    return max(1, len(content) // CHARS_A_TOKEN)
