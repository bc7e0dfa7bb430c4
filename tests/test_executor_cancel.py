"""Copies called off, or late: nothing is to be seen, no slot lost, no lease left."""

import asyncio
from contextlib import AsyncExitStack
from random import Random

import pytest
from replicas import (
    CHAIN,
    Faulty,
    Lab,
    move,
    soon,
    start,
)

from replication.errors import (
    Cancelled,
    TransferTimeout,
)
from replication.executor import Executor
from replication.lease import Lease
from replication.store import State
from replication.target import Target
from replication.transports.deadline import within
from replication.transports.memory import intact, nth, stalled


@pytest.mark.parametrize("deadline_s", [-1.0, 0.0, 0.05])
def test_after_its_deadline_a_move_has_left_nothing_behind(deadline_s: float) -> None:
    lab = Lab(wire=nth(2, stalled))
    (result,) = lab.run(move(holders=("a", "c"), deadline_s=deadline_s))
    assert type(result.error) is TransferTimeout
    lab.check_nothing_came()


@pytest.mark.parametrize("piece", range(1, 10))
def test_a_move_can_be_called_off_at_any_piece(piece: int) -> None:
    lab = Lab(wire=nth(piece, stalled))

    async def scenario() -> None:
        executor = lab.executor(chunk_bytes=48)
        running = asyncio.create_task(executor.run([move()]))
        for _ in range(100):
            await asyncio.sleep(0)
        assert executor.cancel("b", "t", CHAIN[-1]) == 1
        (result,) = await running
        assert type(result.error) is Cancelled
        assert executor.cancel("b", "t", CHAIN[-1]) == 0

    soon(scenario())
    lab.check_nothing_came()
    lab.wire = intact
    assert lab.run(move())[0].ok
    assert lab.b.holds(CHAIN)


@pytest.mark.parametrize("steps", range(25))
def test_a_move_can_be_called_off_at_any_step(steps: int) -> None:
    lab = Lab()

    async def scenario() -> None:
        executor = lab.executor()
        running = asyncio.create_task(executor.run([move()]))
        for _ in range(steps):
            await asyncio.sleep(0)
        await executor.aclose()
        await executor.aclose()
        (result,) = await running
        if result.ok:
            assert lab.b.holds(CHAIN)
        else:
            assert type(result.error) is Cancelled
            assert lab.b.pool.missing("t", CHAIN) == CHAIN

    soon(scenario())
    lab.check_nothing_is_left()


def test_when_the_first_of_two_is_called_off_the_second_brings_it() -> None:
    lab = Lab(wire=nth(2, stalled))

    async def scenario() -> None:
        executor = lab.executor()
        first = asyncio.create_task(executor.run([move()]))
        await asyncio.sleep(0)
        second = asyncio.create_task(executor.run([move(holders=("c",))]))
        for _ in range(50):
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        (result,) = await second
        assert result.ok

    soon(scenario())
    assert lab.b.holds(CHAIN)
    lab.check_nothing_is_left()


@pytest.mark.parametrize("kind", ["tcp", "shm"])
def test_a_prefix_is_brought_over_a_real_transport(kind: str) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            a, b = [await start(kind, stack) for _ in "ab"]
            a.compute(CHAIN)
            executor = Executor(
                {"b": Target(b.pool, b.transport)}, {"a": a.holder}, clock=lambda: 0.0
            )
            (result,) = await executor.run([move()])
            assert result.ok
            assert b.holds(CHAIN)
            assert a.pool.leases(0.0) == b.pool.leases(0.0) == 0

    soon(scenario())


@pytest.mark.parametrize(("kind", "most_steps"), [("tcp", 60), ("shm", 20)])
def test_a_hundred_cancels_at_random_moments_leave_a_real_transport_sound(
    kind: str, most_steps: int
) -> None:
    chance = Random(4)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            a, b = [await start(kind, stack) for _ in "ab"]
            a.compute(CHAIN)
            executor = Executor(
                {"b": Target(b.pool, b.transport)},
                {"a": a.holder},
                clock=lambda: 0.0,
                chunk_bytes=48,
            )
            called_off = 0
            for _ in range(100):
                running = asyncio.create_task(executor.run([move()]))
                for _ in range(chance.randrange(most_steps)):
                    await asyncio.sleep(0)
                called_off += executor.cancel("b", "t", CHAIN[-1])
                (result,) = await running
                assert result.ok == b.holds(CHAIN)
                assert a.pool.leases(0.0) == b.pool.leases(0.0) == 0
                assert State.FILLING not in b.pool.states(0.0)
                for block in CHAIN:
                    b.pool.reclaim("t", block)
            assert called_off >= 20
            assert (await executor.run([move()]))[0].ok
            assert b.holds(CHAIN)

    soon(scenario())


class Silent(Faulty):
    """A holder that answers late that it can't, and then not at all."""

    async def verify(self, lease: Lease) -> None:
        async with within(0.1):
            await asyncio.Event().wait()

    async def release(self, lease: Lease) -> None:
        await asyncio.Event().wait()


def test_a_lease_that_ends_while_it_is_released_is_no_cancel() -> None:
    lab = Lab()
    lab.holders["a"] = Silent(lab.a.holder, "", None)
    executor = lab.executor(lease_s=0.2)
    (result,) = asyncio.run(executor.run([move(holders=("a", "c"))]))
    assert result.ok
    assert result.retries == 1
