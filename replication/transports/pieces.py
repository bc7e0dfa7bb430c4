"""What every transport does with the pieces of a read."""

from collections.abc import Iterable, Iterator, Sequence

from replication.transports.base import Piece


def check_target(pieces: Sequence[Piece], into: memoryview) -> memoryview:
    """Return one's own memory as bytes, if all pieces lie in it.

    Raises
    ------
    ValueError
        If one doesn't, has a negative offset, or has no bytes.
    """
    for piece in pieces:
        if piece.size_bytes < 1 or min(piece.source_offset, piece.target_offset) < 0:
            raise ValueError(f"a piece needs bytes and offsets from 0 on, got {piece}")
        if piece.target_offset + piece.size_bytes > into.nbytes:
            raise ValueError(f"{piece} ends outside of {into.nbytes} bytes of memory")
    return into.cast("B")


def batches(pieces: Iterable[Piece], most_bytes: int) -> Iterator[list[Piece]]:
    """Yield the same stretches in lists of `most_bytes` together; the last may be shorter.

    >>> pieces = [Piece(0, 0, 5), Piece(9, 5, 2)]
    >>> [[piece.size_bytes for piece in batch] for batch in batches(pieces, most_bytes=3)]
    [[3], [2, 1], [1]]
    """
    batch: list[Piece] = []
    room_bytes = most_bytes
    for piece in pieces:
        done_bytes = 0
        while done_bytes < piece.size_bytes:
            size_bytes = min(room_bytes, piece.size_bytes - done_bytes)
            start, end = piece.source_offset + done_bytes, piece.target_offset + done_bytes
            batch.append(Piece(start, end, size_bytes))
            done_bytes += size_bytes
            room_bytes -= size_bytes
            if not room_bytes:
                yield batch
                batch, room_bytes = [], most_bytes
    if batch:
        yield batch


def total_bytes(pieces: Iterable[Piece]) -> int:
    """Return how much all of them bring."""
    return sum(piece.size_bytes for piece in pieces)


def after(views: Sequence[memoryview], count: int) -> list[memoryview]:
    """Return what follows the first `count` bytes.

    >>> [bytes(view) for view in after([memoryview(b"abc"), memoryview(b"de")], count=2)]
    [b'c', b'de']
    """
    for number, view in enumerate(views):
        if count < view.nbytes:
            return [view[count:], *views[number + 1 :]]
        count -= view.nbytes
    return []
