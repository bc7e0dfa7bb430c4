from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.forecast import Prefix
from policies.base import Copy, Decision
from replication.chunks import parcels, pieces
from replication.layout import Layout
from replication.plan import make_plan


def copy(
    blocks: int = 2,
    source: str = "a",
    target: str = "b",
    size_bytes: int = 100,
    value_s: float = 1.0,
    deadline_s: float = inf,
) -> Copy:
    chain = tuple(range(1, 10))
    prefix = Prefix(key=chain[blocks - 1], blocks=blocks, tokens=16 * blocks)
    return Copy(prefix, chain, source, target, size_bytes, deadline_s, value_s, 0.0, "because")


def decide(*copies: Copy) -> Decision:
    return Decision(ranked=("a", "b"), copies=copies)


def test_a_move_is_of_the_prefix_and_no_more() -> None:
    (move,) = make_plan(decide(copy(blocks=3)), tenant="t")
    assert move.chain == (1, 2, 3)
    assert move.key == ("b", "t", 3)
    assert move.holders == ("a",)
    assert move.reason == "because"


def test_what_saves_most_for_each_byte_comes_first() -> None:
    large = copy(target="b", size_bytes=1000, value_s=5.0)
    small = copy(target="c", size_bytes=10, value_s=1.0)
    late = copy(target="d", size_bytes=10, value_s=1.0, deadline_s=5.0)
    plan = make_plan(decide(large, small, late), tenant="t")
    assert [move.target for move in plan] == ["d", "c", "b"]


def test_the_same_prefix_to_the_same_target_is_moved_once_from_either_source() -> None:
    first = copy(source="a", value_s=1.0, deadline_s=9.0)
    second = copy(source="c", value_s=3.0, deadline_s=4.0)
    (move,) = make_plan(decide(first, second, first), tenant="t", others={2: ("d", "a", "b")})
    assert move.holders == ("a", "d", "c")
    assert move.value_s == 3.0
    assert move.deadline_s == 9.0


def test_tenants_make_moves_differ() -> None:
    decision = decide(copy())
    assert make_plan(decision, "t")[0].key != make_plan(decision, "u")[0].key


def test_a_copy_to_where_it_comes_from_is_refused() -> None:
    with pytest.raises(ValueError, match="from a to itself"):
        make_plan(decide(copy(target="a")), tenant="t")


def test_a_copy_of_nothing_is_refused() -> None:
    empty = Copy(Prefix(0, 0, 0), (1,), "a", "b", 1, inf, 1.0, 0.0, "")
    with pytest.raises(ValueError, match="names no block"):
        make_plan(decide(empty), tenant="t")


layouts = st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), min_size=1, max_size=2
).map(tuple)


@given(
    layer_bytes=layouts,
    here=st.permutations(range(6)),
    there=st.permutations(range(4)),
    chunk_bytes=st.integers(1, 40),
)
def test_chunks_bring_each_byte_of_each_block_to_its_place_once(
    layer_bytes: tuple[tuple[int, ...], ...], here: list[int], there: list[int], chunk_bytes: int
) -> None:
    source, target = Layout(6, layer_bytes), Layout(4, layer_bytes)
    slots = list(zip(here, there, strict=False))[:3]
    found = parcels(len(slots), source.block_bytes, chunk_bytes)
    for rank in source.ranks:
        wanted = {
            end + at: start + at
            for one, other in slots
            for (start, size_bytes), (end, _) in zip(
                source.stretches(rank, one), target.stretches(rank, other), strict=True
            )
            for at in range(size_bytes)
        }
        brought = [
            (piece.target_offset + at, piece.source_offset + at)
            for parcel in found
            for stretch in parcel.chunks
            for piece in pieces(
                source, target, rank, slots[parcel.blocks.start : parcel.blocks.stop], stretch
            )
            for at in range(piece.size_bytes)
        ]
        assert len(brought) == len(wanted)
        assert dict(brought) == wanted


@given(count=st.integers(0, 20), block_bytes=st.integers(1, 50), chunk_bytes=st.integers(1, 200))
def test_parcels_hold_each_block_once_and_chunks_are_no_larger_than_asked(
    count: int, block_bytes: int, chunk_bytes: int
) -> None:
    found = parcels(count, block_bytes, chunk_bytes)
    assert [block for parcel in found for block in parcel.blocks] == list(range(count))
    for parcel in found:
        assert [start for start, _ in parcel.chunks] == [0, *(end for _, end in parcel.chunks)][:-1]
        assert parcel.chunks[-1][1] == block_bytes
        for start, end in parcel.chunks:
            assert 0 < (end - start) * len(parcel.blocks) <= chunk_bytes


def test_neighbours_on_both_sides_are_one_piece() -> None:
    layout = Layout(slots=4, layer_bytes=((8, 8),))
    found = pieces(layout, layout, 0, [(1, 0), (0, 3), (2, 1)], (0, 16))
    assert [(one.source_offset, one.target_offset, one.size_bytes) for one in found] == [
        (0, 24, 8),
        (8, 0, 16),
        (32, 56, 8),
        (40, 32, 16),
    ]


def test_a_stretch_brings_the_part_of_each_layer_that_it_covers() -> None:
    layout = Layout(slots=2, layer_bytes=((8, 8), (8,)))
    stretch = (6, 20)
    first = pieces(layout, layout, 0, [(0, 1)], stretch)
    second = pieces(layout, layout, 1, [(0, 1)], stretch)
    assert [(one.source_offset, one.target_offset, one.size_bytes) for one in first] == [
        (6, 14, 2),
        (16, 24, 8),
    ]
    assert [(one.source_offset, one.target_offset, one.size_bytes) for one in second] == [(0, 8, 4)]
