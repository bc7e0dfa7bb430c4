"""Which of several copies goes first, and how many chunks are under way."""

import asyncio

import pytest
from replicas import (
    CHAIN,
    LAYOUT,
    Lab,
    move,
    soon,
)

from replication.executor import Executor
from replication.plan import Move
from replication.transports.base import Piece, Region


def test_a_worthier_move_overtakes_at_the_end_of_a_chunk() -> None:
    lab = Lab()
    lab.a.compute((21, 22))
    order: list[int] = []

    async def wire(region: Region, piece: Piece, held: memoryview) -> memoryview:
        order.append(len(held))
        return held

    lab.wire = wire
    executor = lab.executor(chunk_bytes=20, rates_bytes_s={("b", "in"): 20_000.0})
    ends: list[tuple[int, ...]] = []

    async def go(one: Move) -> None:
        (result,) = await executor.run([one])
        assert result.ok
        ends.append(one.chain)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(go(move(value_s=1.0)))
            while len(order) < 3:
                await asyncio.sleep(0)
            group.create_task(go(move((21, 22), value_s=50.0)))

    soon(scenario())
    assert ends == [(21, 22), CHAIN]
    assert lab.b.holds(CHAIN)


@pytest.mark.parametrize("window", [1, 3, 5])
def test_as_many_chunks_are_under_way_as_the_window_says(window: int) -> None:
    lab = Lab()
    under_way = most = 0

    async def wire(region: Region, piece: Piece, held: memoryview) -> memoryview:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(10):
            await asyncio.sleep(0)
        under_way -= 1
        return held

    lab.wire = wire
    (result,) = asyncio.run(lab.executor(chunk_bytes=20, window=window).run([move()]))
    assert result.ok
    assert most == window
    assert lab.b.holds(CHAIN)


@pytest.mark.parametrize("window", [1, 4])
def test_from_the_next_chunk_on_a_worthier_move_has_the_link_to_itself(window: int) -> None:
    lab = Lab()
    lab.a.compute((21, 22))
    worthier = {lab.a.pool.lease("t", (block,), 0.0, -1.0).slots[0] for block in (21, 22)}
    began: list[bool] = []

    async def wire(region: Region, piece: Piece, held: memoryview) -> memoryview:
        began.append(slot_of(piece, int(region.key)) in worthier)
        return held

    lab.wire = wire
    rates = {("b", "in"): 3_000.0}  # 10 ms a chunk
    executor = lab.executor(chunk_bytes=30, rates_bytes_s=rates, window=window)

    async def scenario() -> None:
        cheap = asyncio.create_task(executor.run([move(value_s=1.0)]))
        while len(began) < 3:
            await asyncio.sleep(0)
        dear = asyncio.create_task(executor.run([move((21, 22), value_s=50.0)]))
        assert (await dear)[0].ok
        assert (await cheap)[0].ok

    soon(scenario())
    first = began.index(True)
    last = len(began) - began[::-1].index(True)
    assert False not in began[first:last]
    assert lab.b.holds(CHAIN)


def slot_of(piece: Piece, rank: int) -> int:
    """Return the slot at the source that a piece, within one layer, is of."""
    for slot in range(LAYOUT.slots):
        for offset, size_bytes in LAYOUT.stretches(rank, slot):
            if offset <= piece.source_offset < offset + size_bytes:
                return slot
    raise AssertionError(piece)


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("name", ["chunk_bytes", "window", "stripes"])
def test_a_count_below_one_is_refused(name: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got {count}"):
        Executor({}, {}, clock=lambda: 0.0, **{name: count})  # type: ignore[arg-type]
