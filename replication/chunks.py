"""Cuts a copy into reads that can each be waited for, paid for and called off."""

from collections.abc import Iterator, Sequence

from replication.layout import Layout
from replication.transports.base import Piece
from replication.transports.pieces import batches


def cut(
    source: Layout, target: Layout, rank: int, slots: Sequence[tuple[int, int]], chunk_bytes: int
) -> Iterator[list[Piece]]:
    """Return the pieces of one rank, in lists of `chunk_bytes` together; the last may be shorter.

    `slots` pairs each block's slot at the source with its slot at the target. Layer comes before
    block, so that blocks that are neighbours on both sides are one piece.

    Examples
    --------
    Slots 0 and 1 go to 2 and 3: two layers of 10 bytes a block are two pieces of 20 bytes:

    >>> layout = Layout(slots=4, layer_bytes=((10, 10),))
    >>> for chunk in cut(layout, layout, 0, [(0, 2), (1, 3)], chunk_bytes=30):
    ...     print([(piece.source_offset, piece.size_bytes) for piece in chunk])
    [(0, 20), (40, 10)]
    [(50, 10)]
    """
    return batches(_pieces(source, target, rank, slots), chunk_bytes)


def _pieces(
    source: Layout, target: Layout, rank: int, slots: Sequence[tuple[int, int]]
) -> Iterator[Piece]:
    """Yield what lies together on both sides as one piece."""
    blocks = [
        zip(source.stretches(rank, here), target.stretches(rank, there), strict=True)
        for here, there in sorted(slots)
    ]
    last = Piece(0, 0, 0)
    for layer in zip(*blocks, strict=True):
        for (start, size_bytes), (end, _) in layer:
            follows = (
                start == last.source_offset + last.size_bytes
                and end == last.target_offset + last.size_bytes
            )
            if follows:
                last = Piece(last.source_offset, last.target_offset, last.size_bytes + size_bytes)
                continue
            if last.size_bytes:
                yield last
            last = Piece(start, end, size_bytes)
    if last.size_bytes:
        yield last
