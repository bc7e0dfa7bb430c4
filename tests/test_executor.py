"""Copies that go well, or end for want of room or of a holder."""

import asyncio
from dataclasses import replace

import pytest
from replicas import (
    CHAIN,
    LAYOUT,
    Lab,
    move,
)

from replication.errors import (
    Busy,
    NoRoom,
    PeerGone,
)
from replication.executor import Executor
from replication.plan import Move
from replication.target import Target


def test_a_prefix_is_brought_whole_and_right_to_the_byte() -> None:
    lab = Lab()
    (result,) = lab.run(move())
    assert result.ok
    assert result.moved_bytes == 3 * LAYOUT.block_bytes
    assert result.wasted_bytes == 0
    assert result.path == "a -> b over MemoryTransport"
    assert result.retries == 0
    assert lab.b.holds(CHAIN)
    lab.check_nothing_is_left()


@pytest.mark.parametrize("chunk_bytes", [1, 7, 120, 10_000])
def test_chunks_of_any_size_bring_the_same(chunk_bytes: int) -> None:
    lab = Lab()
    (result,) = asyncio.run(lab.executor(chunk_bytes=chunk_bytes).run([move()]))
    assert result.ok
    assert lab.b.holds(CHAIN)


def test_a_plan_that_is_run_twice_moves_once() -> None:
    lab = Lab()
    lab.run(move())
    (again,) = lab.run(move())
    assert again.ok
    assert again.moved_bytes == 0
    assert again.path == ""


def test_only_what_is_missing_is_moved() -> None:
    lab = Lab()
    lab.run(move(CHAIN[:2]))
    (result,) = lab.run(move())
    assert result.moved_bytes == LAYOUT.block_bytes
    assert lab.b.holds(CHAIN)


def test_moves_that_share_blocks_bring_each_of_them_once() -> None:
    lab = Lab()
    results = lab.run(move(), move(CHAIN[:2]), move(), move(holders=("c",)))
    assert all(result.ok for result in results)
    assert sum(result.moved_bytes for result in results) == 3 * LAYOUT.block_bytes
    assert lab.b.holds(CHAIN)
    lab.check_nothing_is_left()


def test_what_was_copied_can_be_copied_on() -> None:
    lab = Lab()
    lab.run(move())
    target = lab.replica("d")
    onward = Executor(
        {"d": Target(target.pool, target.transport)}, {"b": lab.b.holder}, clock=lambda: 0.0
    )
    (result,) = asyncio.run(onward.run([replace(move(holders=("b",)), target="d")]))
    assert result.ok
    assert target.holds(CHAIN)


def test_a_full_target_keeps_what_is_worth_more_and_is_not_asked_twice() -> None:
    lab = Lab()
    others = tuple(range(100, 100 + LAYOUT.slots))
    lab.b.compute(others, worth=1e9)
    (result,) = lab.run(move(holders=("a", "c")))
    assert type(result.error) is NoRoom
    assert result.retries == 0
    assert lab.b.holds(others)
    lab.check_nothing_is_left()


def test_a_full_target_gives_up_what_is_worth_less() -> None:
    lab = Lab()
    others = tuple(range(100, 100 + LAYOUT.slots))
    lab.b.compute(others, worth=0.0)
    (result,) = lab.run(move())
    assert result.ok
    assert lab.b.holds(CHAIN)
    assert lab.b.pool.resident("t", others) == LAYOUT.slots - len(CHAIN)


def test_a_second_controller_on_the_same_target_is_told_to_wait() -> None:
    lab = Lab()
    placement = lab.b.pool.place("t", CHAIN[:1], worth=1.0, now_s=0.0)
    (result,) = lab.run(move(holders=("a", "c")))
    assert type(result.error) is Busy
    lab.b.pool.abort(placement)
    lab.check_nothing_came()


@pytest.mark.parametrize(
    "wanted", [replace(move(), target="x"), move(holders=("x",)), move(holders=())]
)
def test_an_unknown_replica_is_as_good_as_gone(wanted: Move) -> None:
    lab = Lab()
    (result,) = lab.run(wanted)
    assert type(result.error) is PeerGone
    lab.check_nothing_came()


def test_a_failed_move_does_not_stop_the_others() -> None:
    lab = Lab()
    lab.a.compute((21, 22))
    results = lab.run(move(tenant="u"), move((21, 22)), move())
    assert [result.ok for result in results] == [False, True, True]
    assert lab.b.holds((21, 22))
