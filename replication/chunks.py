"""Cuts a copy into parcels that are checked together, and those into chunks that are read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replication.layout import Layout
from replication.transports.base import Piece

Stretch = tuple[int, int]
"""From the first byte to past the last: within a block, rank after rank, layer after layer."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """Blocks that are read from one holder and checked together.

    `blocks` are numbers, from 0 on, of the blocks that are wanted. Each chunk brings the same
    stretch of all of them, so that a block grows from its first byte on.
    """

    blocks: range
    chunks: tuple[Stretch, ...]


def parcels(count: int, block_bytes: int, chunk_bytes: int) -> list[Parcel]:
    """Return `count` blocks as parcels: few small blocks in one chunk, or one large one in several.

    Examples
    --------
    >>> parcels(count=3, block_bytes=10, chunk_bytes=20)
    [Parcel(blocks=range(0, 2), chunks=((0, 10),)), Parcel(blocks=range(2, 3), chunks=((0, 10),))]
    >>> parcels(count=1, block_bytes=10, chunk_bytes=4)
    [Parcel(blocks=range(0, 1), chunks=((0, 4), (4, 8), (8, 10)))]
    """
    together = max(1, chunk_bytes // block_bytes)
    step = block_bytes if together > 1 else chunk_bytes
    chunks = tuple((start, min(start + step, block_bytes)) for start in range(0, block_bytes, step))
    return [
        Parcel(range(first, min(first + together, count)), chunks)
        for first in range(0, count, together)
    ]


def pieces(
    source: Layout, target: Layout, rank: int, slots: Sequence[tuple[int, int]], stretch: Stretch
) -> list[Piece]:
    """Return what of a stretch lies on one rank; what is together on both sides is one piece.

    `slots` pairs each block's slot at the source with its slot at the target.

    Examples
    --------
    Slots 0 and 1 go to 2 and 3: two layers of 10 bytes a block are two pieces of 20 bytes:

    >>> layout = Layout(slots=4, layer_bytes=((10, 10),))
    >>> found = pieces(layout, layout, 0, [(0, 2), (1, 3)], (0, 20))
    >>> [(piece.source_offset, piece.target_offset, piece.size_bytes) for piece in found]
    [(0, 20, 20), (40, 60, 20)]
    """
    found: list[Piece] = []
    runs = _runs(slots)
    for layer in _layers(target, rank, stretch):
        size_bytes = layer.end - layer.begin
        for here, there, count in runs:
            together = count if size_bytes == layer.size_bytes else 1
            for number in range(0, count, together):
                start = layer.offset(source, here + number)
                into = layer.offset(target, there + number)
                found.append(Piece(start, into, together * size_bytes))
    return found


def _runs(slots: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return the first slots and the length of each run that goes up on both sides."""
    runs: list[tuple[int, int, int]] = []
    for here, there in sorted(slots):
        if runs:
            first, into, count = runs[-1]
            if (here, there) == (first + count, into + count):
                runs[-1] = (first, into, count + 1)
                continue
        runs.append((here, there, 1))
    return runs


@dataclass(frozen=True, slots=True)
class _Layer:
    """The part of a layer that is wanted, `begin` to `end`; `before` are the layers' before it."""

    before: int
    size_bytes: int
    begin: int
    end: int

    def offset(self, layout: Layout, slot: int) -> int:
        """Return where that part of a slot's block begins in its rank's memory."""
        return layout.slots * self.before + slot * self.size_bytes + self.begin


def _layers(layout: Layout, rank: int, stretch: Stretch) -> Iterator[_Layer]:
    """Yield what a stretch touches of a rank."""
    rank_start, before = sum(map(layout.rank_bytes, range(rank))), 0
    for size_bytes in layout.layer_bytes[rank]:
        at = rank_start + before
        begin, end = max(stretch[0], at), min(stretch[1], at + size_bytes)
        if begin < end:
            yield _Layer(before, size_bytes, begin - at, end - at)
        before += size_bytes
