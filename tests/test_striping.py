"""One copy from several holders at once."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from replicas import CHAIN, LAYOUT, Lab, Replica, contents, move, soon

from replication.errors import PeerGone
from replication.lease import Lease
from replication.parcels import Parcels
from replication.peer import Offer, PoolHolder
from replication.result import Result
from replication.transports.base import Piece, Region
from replication.transports.memory import Wire, gone, intact

LONG = tuple(range(31, 39))
"""As many blocks as a pool has slots."""


class Stripes(Lab):
    """Replicas a and c hold LONG; its wire counts pieces by whom they come from."""

    def __init__(self, patience: dict[str, int] | None = None) -> None:
        super().__init__()
        for replica in (self.a, self.c):
            for block in (11, 12, 13):
                replica.pool.reclaim("t", block)
            replica.compute(LONG)
        self.brought: Counter[str] = Counter()
        self.patience = patience or {}
        self.faults: dict[str, Callable[[int], Wire]] = {}
        self.wire = self.count

    async def count(self, region: Region, piece: Piece, held: memoryview) -> bytes | memoryview:
        for _ in range(self.patience.get(region.peer, 1)):
            await asyncio.sleep(0)
        self.brought[region.peer] += 1
        wire: Wire = intact
        if region.peer in self.faults:
            wire = self.faults[region.peer](self.brought[region.peer])
        return await wire(region, piece, held)

    def copy(self, striped: bool = True, stripes: int = 2, lease_s: float = 30.0) -> Result:
        wanted = move(LONG, holders=("a", "c"), striped=striped)
        executor = self.executor(LAYOUT.block_bytes, lease_s, window=1, stripes=stripes)
        (result,) = asyncio.run(asyncio.wait_for(executor.run([wanted]), timeout=60.0))
        return result


def test_blocks_are_dealt_out_and_each_is_brought_once() -> None:
    lab = Stripes()
    result = lab.copy()
    assert result.ok
    assert result.path == "a + c -> b over MemoryTransport"
    assert result.moved_bytes == len(LONG) * LAYOUT.block_bytes
    assert result.wasted_bytes == 0
    assert lab.brought == {"a": 12, "c": 12}
    assert lab.b.holds(LONG)
    lab.check_nothing_is_left()


def test_who_gives_faster_gives_more() -> None:
    lab = Stripes(patience={"a": 1, "c": 30})
    assert lab.copy().ok
    assert lab.brought["a"] >= 3 * lab.brought["c"] > 0
    assert lab.b.holds(LONG)


def test_a_copy_of_one_parcel_is_read_from_one_holder() -> None:
    lab = Stripes()
    executor = lab.executor(len(LONG) * LAYOUT.block_bytes, stripes=2)
    (result,) = asyncio.run(executor.run([move(LONG, holders=("a", "c"))]))
    assert result.path == "a -> b over MemoryTransport"


@pytest.mark.parametrize(("striped", "stripes"), [(False, 2), (True, 1)])
def test_a_copy_that_is_not_to_be_striped_is_read_from_one_holder(
    striped: bool, stripes: int
) -> None:
    lab = Stripes()
    assert lab.copy(striped, stripes).path == "a -> b over MemoryTransport"


@pytest.mark.parametrize("dead", ["a", "c"])
@pytest.mark.parametrize("piece", range(1, 13))
def test_when_one_dies_the_other_brings_the_rest_and_nothing_that_is_there(
    dead: str, piece: int
) -> None:
    lab = Stripes()
    lab.faults[dead] = lambda count: gone if count >= piece else intact
    result = lab.copy()
    assert result.ok
    assert result.wasted_bytes == LAYOUT.block_bytes
    assert result.moved_bytes == len(LONG) * LAYOUT.block_bytes
    assert lab.b.holds(LONG)
    lab.check_nothing_is_left()


def test_when_all_die_nothing_is_left() -> None:
    lab = Stripes()
    for name in "ac":
        lab.faults[name] = lambda count: gone if count >= 5 else intact
    result = lab.copy()
    assert type(result.error) is PeerGone
    assert result.moved_bytes == 0
    assert result.wasted_bytes > 0
    assert lab.b.pool.missing("t", LONG) == LONG
    lab.check_nothing_is_left()


class Hanging(PoolHolder):
    """A holder that never answers."""

    async def lease(self, *_: object) -> Offer:
        await asyncio.Event().wait()
        raise AssertionError


def test_one_that_hangs_holds_nobody_up() -> None:
    lab = Stripes()
    lab.holders["a"] = Hanging(lab.a.pool, [], lambda: 0.0)
    result = lab.copy()
    assert result.ok
    assert result.path == "c -> b over MemoryTransport"
    lab.check_nothing_is_left()


class Forgetful(PoolHolder):
    """A holder that confirms two parcels, and dies."""

    confirmed = 0

    async def verify(self, lease: Lease) -> None:
        self.confirmed += 1
        if self.confirmed > 2:
            raise PeerGone("died")
        await super().verify(lease)


def test_what_a_holder_has_not_confirmed_is_brought_again() -> None:
    lab = Stripes()
    regions = [lab.a.transport.register(memory) for memory in lab.a.memories]
    lab.holders["a"] = Forgetful(lab.a.pool, regions, lambda: 0.0)
    result = lab.copy()
    assert result.ok
    assert result.wasted_bytes == LAYOUT.block_bytes
    assert lab.brought == {"a": 9, "c": 18}
    assert lab.b.holds(LONG)


def test_each_block_is_whole_from_one_holder_where_they_computed_unequal_bits() -> None:
    lab = Stripes()
    for block in LONG:
        lab.c.pool.reclaim("t", block)
    lab.c.compute(LONG)
    for rank, memory in enumerate(lab.c.memories):
        for slot in range(LAYOUT.slots):
            for offset, size_bytes in LAYOUT.stretches(rank, slot):
                memory[offset : offset + size_bytes] = b"\7" * size_bytes
    executor = lab.executor(chunk_bytes=50, stripes=2)
    (result,) = asyncio.run(executor.run([move(LONG, holders=("a", "c"))]))
    assert result.ok
    assert {origin(lab.b, block) for block in LONG} == {"a", "c"}


def origin(replica: Replica, block: int) -> str:
    """Return whose bits a block has; all of them have to be."""
    lease = replica.pool.lease("t", (block,), 1.0, 0.0)
    replica.pool.release(lease)
    found = set()
    for rank in LAYOUT.ranks:
        for layer, (offset, size_bytes) in enumerate(LAYOUT.stretches(rank, lease.slots[0])):
            bits = replica.memories[rank][offset : offset + size_bytes]
            found.add("a" if bits == contents("t", block, rank, layer, size_bytes) else "c")
    (one,) = found
    return one


def test_a_striped_copy_can_be_called_off_at_any_step() -> None:
    for steps in range(60):
        lab = Stripes()

        async def scenario(lab: Stripes = lab, steps: int = steps) -> None:
            executor = lab.executor(chunk_bytes=50, stripes=2)
            running = asyncio.create_task(executor.run([move(LONG, holders=("a", "c"))]))
            for _ in range(steps):
                await asyncio.sleep(0)
            await executor.aclose()
            (result,) = await running
            assert result.ok == lab.b.holds(LONG)

        soon(scenario())
        lab.check_nothing_is_left()


def test_what_is_given_back_has_not_landed_and_can_be_taken_again() -> None:
    lab = Lab()
    copy = Parcels(move(), lab.b.pool, chunk_bytes=50, now_s=lambda: 0.0)
    copy.begin()
    follower = lab.b.pool.follow("t", CHAIN, until_s=1.0, now_s=0.0)
    parcel = copy.take()
    assert parcel is not None
    copy.land(parcel, 50)
    assert lab.b.pool.landed(follower) == (50, 0, 0)
    copy.give_back(parcel)
    assert lab.b.pool.landed(follower) == (0, 0, 0)
    assert copy.take() == parcel
    copy.end()
