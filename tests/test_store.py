from collections import Counter
from math import inf

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from replication.errors import Busy, LeaseLost, NoRoom, Recycled
from replication.layout import Layout
from replication.memory import host_view
from replication.resident import Resident
from replication.store import BlockPool, Placement, State

TWO_RANKS = Layout(slots=4, layer_bytes=((3, 5), (4,)))


def make_pool(layout: Layout = TWO_RANKS, epoch: int = 1) -> BlockPool:
    memories = [memoryview(bytearray(layout.region_bytes(rank))) for rank in layout.ranks]
    return BlockPool(layout, memories, epoch)


def put(pool: BlockPool, chain: tuple[int, ...], worth: float = 1.0, tenant: str = "t") -> None:
    placement = pool.place(tenant, chain, worth, now_s=0.0)
    for rank in pool.layout.ranks:
        pool.commit(placement, rank)


def test_a_block_lies_layer_after_layer() -> None:
    assert TWO_RANKS.block_bytes == 12
    assert TWO_RANKS.region_bytes(0) == 32
    assert TWO_RANKS.stretches(0, 2) == ((6, 3), (22, 5))
    assert TWO_RANKS.stretches(1, 2) == ((8, 4),)


@given(
    st.builds(
        Layout,
        slots=st.integers(1, 5),
        layer_bytes=st.lists(
            st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple), min_size=1, max_size=3
        ).map(tuple),
    )
)
def test_blocks_cover_a_ranks_memory_without_gap_or_overlap(layout: Layout) -> None:
    for rank in layout.ranks:
        touched = Counter(
            at
            for slot in range(layout.slots)
            for offset, size_bytes in layout.stretches(rank, slot)
            for at in range(offset, offset + size_bytes)
        )
        assert touched == Counter(range(layout.region_bytes(rank)))


@pytest.mark.parametrize("layer_bytes", [(), ((),), ((4,), ()), ((4, 0),)])
def test_a_layout_without_bytes_is_refused(layer_bytes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="needs"):
        Layout(slots=1, layer_bytes=layer_bytes)


def test_memory_of_another_size_than_the_layouts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be of \[32, 16\] bytes, got \[32\]"):
        BlockPool(TWO_RANKS, [memoryview(bytearray(32))], epoch=1)


def test_nothing_is_resident_before_the_last_rank_has_all_of_it() -> None:
    pool = make_pool()
    placement = pool.place("t", (1, 2), worth=1.0, now_s=0.0)
    assert pool.resident("t", (1, 2)) == 0
    assert not pool.commit(placement, 1)
    assert pool.resident("t", (1, 2)) == 0
    assert pool.states(0.0) == {State.FILLING: 2, State.FREE: 2}
    with pytest.raises(LeaseLost, match="0 of 2 blocks"):
        pool.lease("t", (1, 2), until_s=9.0, now_s=0.0)
    assert pool.commit(placement, 0)
    assert pool.resident("t", (1, 2)) == 2


def test_the_same_rank_twice_is_not_two_ranks() -> None:
    pool = make_pool()
    placement = pool.place("t", (1,), worth=1.0, now_s=0.0)
    assert not pool.commit(placement, 0)
    assert not pool.commit(placement, 0)
    assert pool.resident("t", (1,)) == 0


def test_another_tenants_block_with_the_same_hash_is_another_block() -> None:
    pool = make_pool()
    put(pool, (1,), tenant="a")
    assert pool.resident("b", (1,)) == 0
    with pytest.raises(LeaseLost):
        pool.lease("b", (1,), until_s=9.0, now_s=0.0)
    assert not pool.reclaim("b", 1)
    assert pool.resident("a", (1,)) == 1


def test_a_prefix_with_a_hole_counts_up_to_the_hole() -> None:
    pool = make_pool()
    put(pool, (1, 2, 3))
    assert pool.reclaim("t", 2)
    assert pool.resident("t", (1, 2, 3)) == 1
    assert pool.missing("t", (1, 2, 3)) == (2,)


def test_only_what_is_missing_is_placed_and_its_head_stays() -> None:
    pool = make_pool()
    put(pool, (1, 2))
    placement = pool.place("t", (1, 2, 3), worth=2.0, now_s=0.0)
    assert placement.hashes == (3,)
    assert pool.states(0.0) == {State.LEASED: 2, State.FILLING: 1, State.FREE: 1}
    with pytest.raises(NoRoom, match="2 blocks need 1 more slots"):
        pool.place("t", (8, 9), worth=9.0, now_s=0.0)
    pool.abort(placement)
    assert pool.states(0.0) == {State.VALID: 2, State.FREE: 2}
    assert pool.leases(0.0) == 0


def test_a_tail_does_not_take_the_place_of_its_own_head() -> None:
    pool = make_pool()
    put(pool, (1, 2), worth=0.0)
    put(pool, (8, 9), worth=5.0)
    with pytest.raises(NoRoom):
        pool.place("t", (1, 2, 3), worth=1.0, now_s=0.0)
    assert pool.resident("t", (1, 2)) == 2


def test_a_tail_whose_head_was_taken_back_is_not_committed() -> None:
    pool = make_pool()
    put(pool, (1,))
    placement = pool.place("t", (1, 2), worth=2.0, now_s=0.0)
    pool.commit(placement, 0)
    assert pool.reclaim("t", 1)
    with pytest.raises(Recycled):
        pool.commit(placement, 1)
    pool.abort(placement)
    assert pool.states(0.0) == {State.FREE: 4}


def test_a_block_is_filled_by_one_placement_at_a_time() -> None:
    pool = make_pool()
    placement = pool.place("t", (1, 2), worth=1.0, now_s=0.0)
    with pytest.raises(Busy):
        pool.place("t", (1,), worth=9.0, now_s=0.0)
    assert not pool.reclaim("t", 1)
    pool.abort(placement)
    put(pool, (1,))
    assert pool.resident("t", (1, 2)) == 1


def test_an_ended_placement_can_not_be_committed_and_abort_does_nothing() -> None:
    pool = make_pool()
    placement = pool.place("t", (1,), worth=1.0, now_s=0.0)
    pool.abort(placement)
    put(pool, (5,))
    pool.abort(placement)
    assert pool.resident("t", (5,)) == 1
    with pytest.raises(ValueError, match="has ended"):
        pool.commit(placement, 0)


def test_the_cheapest_makes_room_then_the_longest_unused_tail_before_head() -> None:
    pool = make_pool()
    put(pool, (1, 2), worth=1.0)
    put(pool, (3,), worth=1.0)
    put(pool, (4,), worth=0.5)
    put(pool, (5,), worth=2.0)
    assert pool.resident("t", (4,)) == 0
    put(pool, (6,), worth=2.0)
    assert pool.resident("t", (1, 2)) == 1
    put(pool, (7,), worth=2.0)
    assert pool.resident("t", (1,)) == 0
    assert pool.resident("t", (3,)) == 1


def test_without_room_among_what_is_worth_less_nothing_is_given_up() -> None:
    pool = make_pool()
    put(pool, (1,), worth=1.0)
    put(pool, (2, 3, 4), worth=2.0)
    with pytest.raises(NoRoom):
        pool.place("t", (5, 6), worth=2.0, now_s=0.0)
    assert pool.resident("t", (1,)) == 1
    assert pool.states(0.0) == {State.VALID: 4}


def test_what_is_leased_stays_until_the_lease_runs_out() -> None:
    pool = make_pool()
    put(pool, (1, 2, 3, 4), worth=0.0)
    pool.lease("t", (1, 2, 3, 4), until_s=5.0, now_s=0.0)
    assert pool.states(4.9) == {State.LEASED: 4}
    with pytest.raises(NoRoom):
        pool.place("t", (5,), worth=9.0, now_s=4.9)
    pool.place("t", (5,), worth=9.0, now_s=5.0)
    assert pool.leases(5.0) == 1


def test_a_block_taken_back_under_a_lease_is_noticed_even_if_it_came_back() -> None:
    pool = make_pool()
    put(pool, (1,))
    lease = pool.lease("t", (1,), until_s=5.0, now_s=0.0)
    pool.check(lease, now_s=1.0)
    assert pool.reclaim("t", 1)
    put(pool, (1,))
    with pytest.raises(Recycled, match="was taken back under lease"):
        pool.check(lease, now_s=1.0)


def test_a_pool_that_starts_anew_knows_no_earlier_lease() -> None:
    pool = make_pool()
    put(pool, (1,))
    lease = pool.lease("t", (1,), until_s=inf, now_s=0.0)
    again = BlockPool(pool.layout, pool.memories, epoch=2)
    with pytest.raises(LeaseLost, match="epoch"):
        again.check(lease, now_s=0.0)


def test_a_digest_is_that_of_a_blocks_layers_one_after_the_other() -> None:
    pool = make_pool()
    host_view(pool.memories[0])[:] = bytes(range(32))
    placement = pool.place("t", (1,), worth=1.0, now_s=0.0)
    expected = xxhash.xxh3_64_intdigest(bytes([0, 1, 2, 12, 13, 14, 15, 16]))
    assert placement == Placement(1, (1,), (0,))
    assert pool.digest(0, rank=0) == expected


def test_a_digest_of_what_is_being_filled_is_never_kept() -> None:
    pool = make_pool()
    placement = pool.place("t", (1,), worth=1.0, now_s=0.0)
    before = pool.digest(placement.slots[0], rank=1)
    host_view(pool.memories[1])[0] ^= 1
    assert pool.digest(placement.slots[0], rank=1) != before


operations = st.lists(
    st.tuples(
        st.sampled_from(["put", "place", "commit", "abort", "lease", "release", "reclaim"]),
        st.integers(0, 5),
        st.integers(1, 3),
        st.floats(0.0, 5.0),
    ),
    max_size=40,
)


@given(operations)
def test_slots_are_never_lost_or_given_twice(
    steps: list[tuple[str, int, int, float]],
) -> None:
    pool = make_pool(Layout(slots=5, layer_bytes=((1,),)))
    placements, leases = [], []
    for now_s, (what, first, count, worth) in enumerate(steps):
        chain = tuple(range(first, first + count))
        try:
            if what == "put":
                put(pool, chain, worth)
            elif what == "place":
                placements.append(pool.place("t", chain, worth, now_s))
            elif what == "lease":
                leases.append(pool.lease("t", chain, until_s=now_s + 3.0, now_s=now_s))
            elif what == "reclaim":
                pool.reclaim("t", first)
            elif what == "release" and leases:
                pool.release(leases.pop())
            elif what == "commit" and placements:
                pool.commit(placements[-1], 0)
                placements.pop()
            elif what == "abort" and placements:
                pool.abort(placements.pop())
        except (Busy, NoRoom, LeaseLost, Recycled):
            pass
        states = pool.states(now_s)
        assert states.total() == 5
        assert states[State.FILLING] == sum(len(one.slots) for one in placements)
        held = [slot for one in placements for slot in one.slots]
        assert len(held) == len(set(held))
    for placement in placements:
        pool.abort(placement)
    assert pool.leases(1e9) == 0
    assert set(pool.states(1e9)) <= {State.FREE, State.VALID}


def test_what_is_dropped_is_gone_but_for_what_is_leased() -> None:
    """Of 1, 2, 3 the last two are dropped while 2 is leased; 9 isn't there; 3 counts once."""
    pool = make_pool()
    put(pool, (1, 2, 3))
    lease = pool.lease("t", (1, 2), until_s=5.0, now_s=0.0)
    pool.release(pool.lease("t", (1,), until_s=5.0, now_s=0.0))
    assert pool.drop("t", (2, 3, 9, 3), now_s=1.0) == 1
    assert pool.missing("t", (1, 2, 3)) == (3,)
    pool.check(lease, now_s=1.0)
    assert pool.drop("u", (1, 2), now_s=6.0) == 0
    assert pool.drop("t", (1, 2), now_s=6.0) == 2
    assert pool.states(now_s=6.0) == {State.FREE: 4}


def test_a_block_that_is_being_filled_is_not_dropped() -> None:
    pool = make_pool()
    placement = pool.place("t", (1,), 1.0, now_s=0.0)
    assert pool.drop("t", (1,), now_s=0.0) == 0
    for rank in pool.layout.ranks:
        pool.commit(placement, rank)
    assert pool.resident("t", (1,)) == 1


def test_residents_are_told_with_parent_origin_and_use_heads_first() -> None:
    pool = make_pool()
    computed = pool.place("t", (1, 2), 1.0, now_s=0.0, copied=False)
    for rank in pool.layout.ranks:
        pool.commit(computed, rank)
    put(pool, (1, 2, 3))
    pool.place("t", (4,), 1.0, now_s=0.0)
    pool.lease("t", (1,), until_s=5.0, now_s=0.0)
    assert sorted(pool.residents(), key=lambda one: one.block) == [
        Resident("t", 1, None, copied=False, leased=True),
        Resident("t", 2, 1, copied=False, leased=False),
        Resident("t", 3, 2, copied=True, leased=False),
    ]
