"""Which of several copies goes first, and how many chunks are under way."""

import asyncio

import pytest
from replicas import (
    CHAIN,
    Lab,
    move,
    soon,
)

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


@pytest.mark.parametrize("chunk_bytes", [0, -1])
def test_a_chunk_without_bytes_is_refused(chunk_bytes: int) -> None:
    with pytest.raises(ValueError, match="chunk_bytes must be at least 1"):
        Lab().executor(chunk_bytes=chunk_bytes)
