"""Residency events: what they look like, and that nobody who asks is left with a gap."""

import asyncio
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication import events
from replication.errors import LeaseLost
from replication.events import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    EventLog,
    Events,
)
from replication.layout import Layout
from replication.prefixes import Prefixes
from replication.store import BlockPool

EPOCH = 41
LAYOUT = Layout(slots=8, layer_bytes=((4,),))


class Lab:
    """A pool whose events are kept."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        memory = memoryview(bytearray(LAYOUT.region_bytes(0)))
        self.pool = BlockPool(LAYOUT, [memory], EPOCH)
        self.log = EventLog(
            self.pool.residents, epoch=EPOCH, block_tokens=16, wall_clock=lambda: self.now_s
        )
        self.pool.observer = self.log

    def put(self, chain: tuple[int, ...], tenant: str = "t", copied: bool = True) -> None:
        placement = self.pool.place(tenant, chain, 1.0, 0.0, copied=copied)
        self.pool.commit(placement, 0)


class Follower:
    """Somebody who asks from time to time, and applies what he is told."""

    def __init__(self) -> None:
        self.epoch, self.number = -1, 0
        self.held: set[tuple[str, int]] = set()

    def ask(self, log: EventLog) -> None:
        self.take(log.since(self.epoch, self.number))

    def take(self, found: Events) -> None:
        for _, batch in found.batches:
            for event in batch.events:
                match event:
                    case AllBlocksCleared():
                        self.held.clear()
                    case BlockStored():
                        self.held |= {(event.tenant, block) for block in event.block_hashes}
                    case BlockRemoved():
                        gone = {(event.tenant, block) for block in event.block_hashes}
                        assert gone <= self.held
                        self.held -= gone
        self.epoch, self.number = found.epoch, found.following


def there(lab: Lab) -> set[tuple[str, int]]:
    return {(one.tenant, one.block) for one in lab.pool.residents()}


def test_a_batch_is_what_readers_of_kv_events_take() -> None:
    """Section 3 and 4 of the engines' format: an array of time, tagged maps, and a rank."""
    lab = Lab()
    lab.put((7, 8))
    lab.pool.reclaim("t", 8)
    found = lab.log.since(EPOCH, 0)
    plain = [msgspec.msgpack.decode(msgspec.msgpack.encode(batch)) for _, batch in found.batches]
    stored = {
        "type": "BlockStored",
        "block_hashes": [7, 8],
        "parent_block_hash": None,
        "token_ids": [],
        "block_size": 16,
        "medium": "CPU",
        "tenant": "t",
    }
    removed = {
        "type": "BlockRemoved",
        "block_hashes": [8],
        "medium": "CPU",
        "tenant": "t",
        "never_used": 1,
    }
    assert plain == [
        [1000.0, [{"type": "AllBlocksCleared"}], None],
        [1000.0, [stored], None],
        [1000.0, [removed], None],
    ]
    assert [number for number, _ in found.batches] == [0, 1, 2]
    assert (found.epoch, found.following, found.snapshot) == (EPOCH, 3, False)


def test_blocks_that_dont_follow_each_other_are_events_apart_with_their_parents() -> None:
    """Of 1, 2, 3, 4 only 2 is there: 1 comes alone, 3 and 4 come after 2."""
    lab = Lab()
    lab.put((1, 2))
    lab.pool.reclaim("t", 1)
    lab.put((1, 2, 3, 4))
    (_, batch) = lab.log.since(EPOCH, 3).batches[0]
    assert [
        (one.parent_block_hash, one.block_hashes)
        for one in batch.events
        if isinstance(one, BlockStored)
    ] == [(None, (1,)), (2, (3, 4))]


def test_nothing_is_told_before_a_block_is_whole_nor_of_one_that_never_was() -> None:
    lab = Lab()
    lab.pool.abort(lab.pool.place("t", (1, 2), 1.0, 0.0))
    lab.pool.place("t", (3,), 1.0, 0.0)
    assert lab.log.since(EPOCH, 1).batches == ()


@pytest.mark.parametrize(
    ("copied", "leased", "never_used"),
    [(True, False, 1), (True, True, 0), (False, False, 0), (False, True, 0)],
)
def test_a_copy_that_nobody_leased_is_told_as_never_used(
    copied: bool, leased: bool, never_used: int
) -> None:
    lab = Lab()
    lab.put((5,), copied=copied)
    if leased:
        lab.pool.release(lab.pool.lease("t", (5,), 9.0, 0.0))
    lab.pool.drop("t", (5,), 0.0)
    (event,) = lab.log.since(EPOCH, 2).batches[0][1].events
    assert isinstance(event, BlockRemoved)
    assert event.never_used == never_used


def test_a_copy_that_follows_another_is_no_use_of_it() -> None:
    lab = Lab()
    lab.put((5,))
    lab.put((5, 6))
    assert [(one.block, one.leased) for one in lab.pool.residents()] == [(6, False), (5, False)]


@pytest.mark.parametrize(("epoch", "number"), [(-1, 0), (EPOCH + 1, 2), (EPOCH, 99), (EPOCH, -1)])
def test_who_knows_another_epoch_or_number_gets_a_snapshot(epoch: int, number: int) -> None:
    lab = Lab()
    lab.put((1, 2))
    lab.put((9,), tenant="u")
    lab.pool.reclaim("t", 2)
    found = lab.log.since(epoch, number)
    assert found.snapshot
    ((number, batch),) = found.batches
    assert (number, found.following) == (3, 4)
    assert batch.events == (
        AllBlocksCleared(),
        BlockStored((9,), None, (), 16, "CPU", "u"),
        BlockStored((1,), None, (), 16, "CPU", "t"),
    )


@pytest.mark.parametrize("limit", ["MOST_BATCHES", "MOST_BYTES"])
def test_who_falls_behind_what_is_kept_gets_a_snapshot(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(events, limit, 3 if limit == "MOST_BATCHES" else 500)
    lab, slow = Lab(), Follower()
    slow.ask(lab.log)
    for block in range(100):
        lab.put((block,))
        lab.pool.reclaim("t", block)
    assert len(lab.log._kept) <= 5
    assert lab.log._kept_bytes == sum(size for _, _, size in lab.log._kept)
    found = lab.log.since(slow.epoch, slow.number)
    assert found.snapshot
    lab.put((1, 2))
    slow.take(found)
    slow.ask(lab.log)
    assert slow.held == there(lab)


def test_one_answer_is_bounded_and_the_rest_comes_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "ANSWER_BYTES", 300)
    lab, follower = Lab(), Follower()
    follower.ask(lab.log)
    for block in range(8):
        lab.put((block,))
    sizes = []
    while follower.number < lab.log._following:
        found = lab.log.since(follower.epoch, follower.number)
        sizes.append(len(found.batches))
        follower.take(found)
    assert follower.held == there(lab)
    assert sum(sizes) == 8
    assert 1 < max(sizes) < 8


def test_a_batch_that_is_larger_than_an_answer_is_told_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "ANSWER_BYTES", 1)
    lab = Lab()
    lab.put((1, 2, 3))
    assert [len(lab.log.since(EPOCH, number).batches) for number in range(3)] == [1, 1, 0]


def test_who_waits_for_news_is_told_when_there_is_some() -> None:
    async def scenario() -> None:
        lab = Lab()
        await asyncio.wait_for(lab.log.news(EPOCH, 0), 1.0)
        await asyncio.wait_for(lab.log.news(EPOCH - 1, 1), 1.0)
        waiting = [asyncio.create_task(lab.log.news(EPOCH, 1)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        lab.put((1,))
        await asyncio.wait_for(asyncio.gather(*waiting), 1.0)

    asyncio.run(scenario())


chains = st.sampled_from([(1,), (1, 2), (1, 2, 3), (1, 4), (5, 6, 7, 8), (9,)])
tenants = st.sampled_from(["t", "u"])
steps = st.lists(
    st.tuples(st.sampled_from(["put", "reclaim", "drop", "ask", "late"]), tenants, chains),
    max_size=40,
)


@given(steps=steps)
def test_whoever_follows_knows_what_is_resident(
    steps: Iterable[tuple[str, str, tuple[int, ...]]],
) -> None:
    lab, follower, late = Lab(), Follower(), Follower()
    for step, tenant, chain in steps:
        if step == "put":
            lab.pool.drop("u" if tenant == "t" else "t", range(10), 0.0)
            lab.put(chain, tenant)
        elif step == "reclaim":
            lab.pool.reclaim(tenant, chain[-1])
        elif step == "drop":
            lab.pool.drop(tenant, chain, 0.0)
        elif step == "ask":
            follower.ask(lab.log)
            assert follower.held == there(lab)
        else:
            late.ask(lab.log)
    for one in (follower, late):
        one.ask(lab.log)
        assert one.held == there(lab)
        assert one.number == lab.log._following


def batch(*found: BlockStored) -> Events:
    return Events(1, 1, True, ((0, Batch(0.0, (AllBlocksCleared(), *found))),))


def stored(blocks: tuple[int, ...], parent: int | None = None, tenant: str = "t") -> BlockStored:
    return BlockStored(blocks, parent, (), 16, "CPU", tenant)


def test_prefixes_are_put_together_from_a_snapshot() -> None:
    """1, 2 goes on as 3 and as 4, 5; tenant u's blocks of the same name are others."""
    snapshot = batch(stored((1, 2)), stored((3,), 2), stored((4, 5), 2), stored((2,), None, "u"))
    prefixes = Prefixes(snapshot)
    assert set(prefixes.whole()) == {("t", (1, 2, 3)), ("t", (1, 2, 4, 5)), ("u", (2,))}
    assert prefixes.chain("t", 4) == (1, 2, 4)


@pytest.mark.parametrize("found", [(stored((2, 3), 1),), (stored((1, 2), 2),), ()])
def test_a_prefix_without_its_head_is_none(found: tuple[BlockStored, ...]) -> None:
    prefixes = Prefixes(batch(*found))
    assert list(prefixes.whole()) == []
    with pytest.raises(LeaseLost, match="prefix 2 is not resident"):
        prefixes.chain("t", 2)
