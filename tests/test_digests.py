"""How much of a copy has its digests compared, and where they are worked out."""

import asyncio
import threading
from math import inf

import pytest
import xxhash
from replicas import CHAIN, LAYOUT, Lab, move, recycle, soon

from replication.digests import INLINE_BYTES, digests
from replication.errors import Corrupted, Recycled
from replication.layout import Layout
from replication.peer import PoolHolder
from replication.store import BlockPool
from replication.transports.memory import MemoryTransport, corrupted, meanwhile, nth
from replication.transports.shm import ShmTransport
from replication.transports.tcp import TcpTransport
from replication.transports.verbs import VerbsTransport


class Watched(BlockPool):
    """A pool that notes in which threads digests are worked out."""

    threads: set[int]

    def digest(self, slot: int, rank: int) -> int:
        self.threads.add(threading.get_ident())
        return super().digest(slot, rank)


def filled(block_bytes: int, blocks: int) -> Watched:
    layout = Layout(slots=blocks, layer_bytes=((block_bytes - 1,), (1,)))
    memories = [memoryview(bytearray(layout.region_bytes(rank))) for rank in layout.ranks]
    for slot in range(blocks):
        memories[0][slot * (block_bytes - 1)] = slot
    pool = Watched(layout, memories, epoch=1)
    pool.threads = set()
    placement = pool.place("t", range(blocks), worth=0.0, now_s=0.0)
    for rank in layout.ranks:
        pool.commit(placement, rank)
    return pool


@pytest.mark.parametrize("block_bytes", [10, INLINE_BYTES, 20 << 20])
def test_digests_come_in_order_by_rank_whatever_their_size(block_bytes: int) -> None:
    pool = filled(block_bytes, blocks=3)

    async def scenario() -> None:
        found = [one async for one in digests(pool, [2, 0, 1])]
        for slot, one in zip((2, 0, 1), found, strict=True):
            first = bytes([slot]) + bytes(block_bytes - 2)
            assert one == (xxhash.xxh3_64_intdigest(first), xxhash.xxh3_64_intdigest(b"\0"))

    soon(scenario())


@pytest.mark.parametrize(("block_bytes", "here"), [(1000, True), (INLINE_BYTES, False)])
def test_what_takes_long_does_not_run_on_the_event_loop(block_bytes: int, here: bool) -> None:
    pool = filled(block_bytes, blocks=2)

    async def scenario() -> None:
        assert len([one async for one in digests(pool, [0, 1])]) == 2

    soon(scenario())
    assert (threading.get_ident() in pool.threads) is here


def test_each_way_has_what_it_needs_checked() -> None:
    ways = (MemoryTransport, TcpTransport, ShmTransport, VerbsTransport)
    assert [way.digest_every for way in ways] == [1, 1, 16, 16]


def test_with_each_lease_another_sample_is_digested() -> None:
    lab = Lab()
    holder = PoolHolder(lab.a.pool, lab.a.regions, lambda: 0.0, digest_every=2)

    async def scenario() -> None:
        known = set()
        for _ in range(2):
            offer = await holder.lease("t", CHAIN, 10.0)
            await holder.release(offer.lease)
            sampled = {number for number in range(3) if offer.digests[0][number] is not None}
            assert sampled in ({0, 2}, {1})
            assert [one is None for one in offer.digests[0]] == [
                one is None for one in offer.digests[1]
            ]
            known |= sampled
        assert known == {0, 1, 2}

    soon(scenario())


def test_a_sample_finds_what_is_wrong_in_it() -> None:
    found = 0
    for before in range(2):
        lab = Lab()
        for _ in range(before):
            lab.a.pool.release(lab.a.pool.lease("t", CHAIN, inf, 0.0))
        lab.holders["a"] = PoolHolder(lab.a.pool, lab.a.regions, lambda: 0.0, digest_every=2)
        lab.wire = nth(1, corrupted)
        executor = lab.executor(chunk_bytes=LAYOUT.block_bytes)
        (result,) = asyncio.run(executor.run([move()]))
        found += type(result.error) is Corrupted
    assert found == 1


def test_what_is_not_in_the_sample_has_its_generation_checked() -> None:
    lab = Lab()
    lab.holders["a"] = PoolHolder(lab.a.pool, lab.a.regions, lambda: 0.0, digest_every=1000)
    lab.wire = nth(3, meanwhile(recycle(lab.a)))
    (result,) = lab.run(move())
    assert type(result.error) is Recycled
    lab.check_nothing_came()


@pytest.mark.parametrize("digest_every", [0, -1])
def test_a_sample_of_nothing_is_refused(digest_every: int) -> None:
    lab = Lab()
    with pytest.raises(ValueError, match=f"digest_every must be at least 1, got {digest_every}"):
        PoolHolder(lab.a.pool, [], lambda: 0.0, digest_every)
