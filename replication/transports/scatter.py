"""Pieces made into few one-sided reads: each one stretch at the source, a list of them here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replication.transports.base import Piece


@dataclass(frozen=True, slots=True)
class ScatterRead:
    """One read: from `source_offset` on, spread over `spans` of one's own memory in turn.

    A span is an offset there and a length, both in bytes.
    """

    source_offset: int
    spans: tuple[tuple[int, int], ...]

    @property
    def size_bytes(self) -> int:
        """Return how much is read."""
        return sum(size_bytes for _, size_bytes in self.spans)


def scatter_reads(
    pieces: Sequence[Piece], *, chunk_bytes: int, max_spans: int
) -> Iterator[ScatterRead]:
    """Yield reads that bring `pieces`, none above `chunk_bytes` or of more than `max_spans`.

    Pieces that follow each other at the source are brought by one read, wherever they go.

    Examples
    --------
    >>> pieces = [Piece(0, 100, 4), Piece(4, 50, 4)]
    >>> list(scatter_reads(pieces, chunk_bytes=6, max_spans=8))
    [ScatterRead(source_offset=0, spans=((100, 4), (50, 2))), \
ScatterRead(source_offset=6, spans=((52, 2),))]
    """
    begin, spans, size = 0, list[tuple[int, int]](), 0
    for piece in pieces:
        taken = 0
        while taken < piece.size_bytes:
            source, target = piece.source_offset + taken, piece.target_offset + taken
            follows = bool(spans) and source == begin + size and size < chunk_bytes
            extends = follows and target == sum(spans[-1])
            if spans and not (follows and (extends or len(spans) < max_spans)):
                yield ScatterRead(begin, tuple(spans))
                spans, size, extends = [], 0, False
            if not spans:
                begin = source
            step = min(piece.size_bytes - taken, chunk_bytes - size)
            if extends:
                spans[-1] = (spans[-1][0], spans[-1][1] + step)
            else:
                spans.append((target, step))
            taken, size = taken + step, size + step
    if spans:
        yield ScatterRead(begin, tuple(spans))
