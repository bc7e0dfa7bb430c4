from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.transports.base import Piece
from replication.transports.scatter import ScatterRead, scatter_reads

SOURCE = Random(0).randbytes(4096)
TARGET_BYTES = 8192

pieces_anywhere = st.lists(
    st.builds(Piece, st.integers(0, 3584), st.integers(0, 7680), st.integers(1, 512)), max_size=12
)


def carried_out(reads: list[ScatterRead]) -> bytes:
    """Return what the reads make of an empty target."""
    target = bytearray(TARGET_BYTES)
    for read in reads:
        begin = read.source_offset
        for offset, size_bytes in read.spans:
            target[offset : offset + size_bytes] = SOURCE[begin : begin + size_bytes]
            begin += size_bytes
    return bytes(target)


@given(pieces_anywhere, st.integers(1, 700), st.integers(1, 5))
def test_reads_bring_what_the_pieces_say_within_the_limits(
    pieces: list[Piece], chunk_bytes: int, max_spans: int
) -> None:
    expected = bytearray(TARGET_BYTES)
    for piece in pieces:
        held = SOURCE[piece.source_offset : piece.source_offset + piece.size_bytes]
        expected[piece.target_offset : piece.target_offset + piece.size_bytes] = held
    reads = list(scatter_reads(pieces, chunk_bytes=chunk_bytes, max_spans=max_spans))
    assert carried_out(reads) == expected
    assert all(0 < read.size_bytes <= chunk_bytes for read in reads)
    assert all(1 <= len(read.spans) <= max_spans for read in reads)
    assert all(size_bytes > 0 for read in reads for _, size_bytes in read.spans)


@pytest.mark.parametrize(("max_spans", "count"), [(16, 1), (8, 2), (1, 16)])
def test_blocks_that_follow_each_other_at_the_source_are_one_read(
    max_spans: int, count: int
) -> None:
    pieces = [Piece(100 * number, 1500 - 100 * number, 100) for number in range(16)]
    assert len(list(scatter_reads(pieces, chunk_bytes=4096, max_spans=max_spans))) == count


def test_blocks_that_follow_each_other_at_both_ends_are_one_span() -> None:
    pieces = [Piece(100 * number, 100 * number, 100) for number in range(16)]
    assert list(scatter_reads(pieces, chunk_bytes=4096, max_spans=1)) == [
        ScatterRead(0, ((0, 1600),))
    ]
