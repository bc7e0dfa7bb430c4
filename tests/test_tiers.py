"""Runs used here: 0 has 10 blocks; 1 and 2 have 3 each and follow it; 3 has 4 and stands alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from btb.simulation.tiers import LowerTier, ReplicaCache

BLOCKS = [10, 3, 3, 4]
PATHS = [(0, 1), (0, 2), (3,), (0,)]


def cache(hbm_blocks: int = 16, ram_blocks: int = 100) -> ReplicaCache:
    return ReplicaCache(BLOCKS, hbm_blocks, ram_blocks, disk_blocks=0)


def serve(cache: ReplicaCache, path: tuple[int, ...]) -> None:
    blocks = sum(BLOCKS[run] for run in path)
    assert cache.reserve(path, blocks, now_s=0.0)
    cache.fill(path, blocks)
    cache.release(path)


def test_a_block_counts_only_once_it_is_filled() -> None:
    held = cache()
    assert held.reserve((0, 1), 13, now_s=0.0)
    assert held.matched((0, 1)) == 0
    held.fill((0, 1), 6)
    assert held.matched((0, 1)) == 6
    held.fill((0, 1), 13)
    assert held.matched((0, 1)) == 13
    assert held.matched((0, 2)) == 10


def test_a_prefix_loses_its_tail_before_its_head() -> None:
    held = cache(hbm_blocks=16)
    serve(held, (0, 1))
    assert held.reserve((3,), 4, extra_blocks=1, now_s=0.0)
    # 13 + 5 blocks in 16: two go, from the end of what was used longest ago.
    assert held.matched((0, 1)) == 11
    assert held.used_blocks == 16


def test_what_hbm_evicts_is_in_ram_and_continues_there() -> None:
    held = cache(hbm_blocks=16)
    serve(held, (0, 1))
    assert held.reserve((3,), 4, extra_blocks=12, now_s=0.0)
    assert held.matched((0, 1)) == 0
    assert held.stored((0, 1)) == 13


def test_a_pinned_prefix_is_never_evicted() -> None:
    held = cache(hbm_blocks=16)
    serve(held, (0, 1))
    held.pin((0, 1))
    assert not held.reserve((3,), 4, now_s=0.0)
    assert held.matched((0, 1)) == 13
    held.release((0, 1))
    assert held.reserve((3,), 4, now_s=0.0)


def test_a_transfer_that_fails_leaves_nothing_visible_and_no_place_lost() -> None:
    held = cache()
    assert held.reserve((0,), 10, now_s=0.0)
    held.release((0,))
    assert held.matched((0,)) == 0
    assert held.used_blocks == 0


def test_the_first_block_gone_means_no_hit_at_all() -> None:
    # llm-d-inference-sim#705: block 1 evicted, a query for [1, 2, 3] must hit 0.
    held = ReplicaCache([1, 2], 3, 0, 0)
    serve(held, (0, 1))
    held.valid[0] = 0
    assert held.matched((0, 1)) == 0


def test_ram_drops_what_is_unused_longest_to_disk() -> None:
    disk = LowerTier(100)
    ram = LowerTier(5, disk)
    ram.put(0, 0, 4)
    ram.put(1, 0, 3)
    assert ram.high(0, 0) == 2
    assert disk.high(0, 2) == 4
    assert ram.high(1, 0) == 3


def test_a_tier_without_room_passes_everything_on() -> None:
    disk = LowerTier(10)
    ram = LowerTier(0, disk)
    ram.put(0, 2, 6)
    assert ram.high(0, 2) == 2
    assert disk.high(0, 2) == 6


@given(st.lists(st.sampled_from(PATHS), max_size=30), st.integers(13, 40))
def test_used_blocks_never_pass_the_capacity_and_heads_outlive_tails(
    paths: list[tuple[int, ...]], hbm_blocks: int
) -> None:
    held = cache(hbm_blocks=hbm_blocks, ram_blocks=7)
    for path in paths:
        serve(held, path)
        assert held.used_blocks <= hbm_blocks
        assert held.used_blocks == sum(held.valid)
        assert held.matched(path) == sum(BLOCKS[run] for run in path)
        for tail in (1, 2):
            if held.valid[tail]:
                assert held.valid[0] == BLOCKS[0]


@given(st.lists(st.tuples(st.sampled_from(PATHS), st.booleans()), max_size=30))
def test_pins_and_reservations_always_balance(steps: list[tuple[tuple[int, ...], bool]]) -> None:
    held = cache(hbm_blocks=25)
    open_paths: list[tuple[int, ...]] = []
    for path, close in steps:
        if close and open_paths:
            held.release(open_paths.pop())
        elif held.reserve(path, sum(BLOCKS[run] for run in path), now_s=0.0):
            open_paths.append(path)
        assert 0 <= held.used_blocks <= 25
    for path in open_paths:
        held.release(path)
    assert held.used_blocks == sum(held.valid)


def test_extra_blocks_are_given_back() -> None:
    held = cache()
    assert held.reserve((), 0, extra_blocks=9, now_s=0.0)
    assert held.free_blocks == 7
    held.release((), extra_blocks=9)
    assert held.free_blocks == 16


def test_a_reservation_that_does_not_fit_changes_nothing() -> None:
    held = cache(hbm_blocks=12)
    serve(held, (3,))
    before = (held.used_blocks, list(held.valid))
    assert not held.reserve((0, 1), 13, now_s=0.0)
    assert (held.used_blocks, list(held.valid)) == before
    with pytest.raises(KeyError):
        _ = held.origin[0]


def test_what_is_kept_goes_last_until_its_time_is_over() -> None:
    # Of 26 blocks 17 are used: 10 and 3, kept until 5 s, then 4 of another request.
    for now_s, first_left, last_left in ((4.9, 13, 0), (5.1, 9, 4)):
        held = cache(hbm_blocks=26)
        serve(held, (0, 1))
        held.keep((0, 1), until_s=5.0, now_s=0.0)
        serve(held, (3,))
        assert held.reserve((), 0, extra_blocks=13, now_s=now_s)
        assert (held.matched((0, 1)), held.matched((3,))) == (first_left, last_left)


def test_more_than_half_of_hbm_is_never_kept() -> None:
    held = cache(hbm_blocks=24)  # 12 can be kept: the head of 10 blocks, not its tail of 3
    serve(held, (0, 1))
    held.keep((0, 1), until_s=5.0, now_s=0.0)
    serve(held, (3,))
    assert held.reserve((), 0, extra_blocks=12, now_s=1.0)
    assert (held.matched((0, 1)), held.matched((3,))) == (10, 2)


def test_a_request_that_needs_the_room_gets_it_from_what_is_kept() -> None:
    held = cache(hbm_blocks=26)
    serve(held, (0, 1))
    held.keep((0, 1), until_s=5.0, now_s=0.0)
    assert held.reserve((), 0, extra_blocks=20, now_s=1.0)
    assert held.matched((0, 1)) == 6
