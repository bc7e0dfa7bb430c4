"""One prefix to many targets, each handing it on while it arrives."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replicas import CHAIN, LAYOUT, Lab, Replica, move, recycle, soon

from replication.errors import (
    Cancelled,
    Corrupted,
    LeaseLost,
    NoRoom,
    PeerGone,
    Recycled,
    ReplicationError,
)
from replication.executor import Executor
from replication.forwarding import PoolForwarder
from replication.layout import Layout
from replication.memory import host_view
from replication.multicast import fewest_steps, spread
from replication.peer import PoolHolder
from replication.plan import Move
from replication.result import Result
from replication.store import BlockPool, State
from replication.target import Target
from replication.transports.base import Piece, Region
from replication.transports.memory import (
    MemoryTransport,
    Wire,
    corrupted,
    gone,
    intact,
    meanwhile,
    nth,
    stalled,
)

NAMES = ("d", "e", "f", "g")
CHUNK_BYTES = 50
WHOLE_BYTES = len(CHAIN) * LAYOUT.block_bytes


class Fan(Lab):
    """Replicas a and c hold CHAIN, four others follow each other; each has a wire of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.targets = {name: self.replica(name) for name in NAMES}
        self.faults: dict[str, Wire] = {}
        self.sent_bytes: Counter[str] = Counter()
        for name in NAMES:
            self.network[name].wire = self.counting(name)

    def counting(self, reader: str) -> Wire:
        async def wire(region: Region, piece: Piece, held: memoryview) -> bytes | memoryview:
            await asyncio.sleep(0)
            self.sent_bytes[region.peer] += len(held)
            fault = self.faults.get(f"{region.peer}{reader}", intact)
            return await fault(region, piece, held)

        return wire

    def fan_executor(self, window: int = 2, lease_s: float = 30.0) -> Executor:
        return Executor(
            {name: Target(one.pool, one.transport) for name, one in self.targets.items()},
            self.holders,
            forwarders={name: self.forwarder(one) for name, one in self.targets.items()},
            clock=lambda: self.now_s,
            chunk_bytes=CHUNK_BYTES,
            window=window,
            lease_s=lease_s,
        )

    def forwarder(self, replica: Replica) -> PoolForwarder:
        return PoolForwarder(replica.pool, replica.regions, lambda: self.now_s, patience_s=0.02)

    def plan(self, holders: tuple[str, ...] = ("a",)) -> tuple[Move, ...]:
        moves = [move(holders=holders, target=name) for name in NAMES]
        return spread(moves, CHUNK_BYTES)

    def fan_out(self, holders: tuple[str, ...] = ("a",), lease_s: float = 30.0) -> list[Result]:
        executor = self.fan_executor(lease_s=lease_s)
        return asyncio.run(asyncio.wait_for(executor.run(self.plan(holders)), timeout=60.0))

    def all_hold_it(self) -> bool:
        return all(one.holds(CHAIN) for one in self.targets.values())

    def check_all(self) -> None:
        """Each has all of it, right to the byte, or nothing; nothing is lost or kept."""
        self.check_nothing_is_left()
        for one in self.targets.values():
            assert one.holds(CHAIN) or one.pool.missing("t", CHAIN) == CHAIN
            assert one.pool.leases(self.now_s) == 0
            assert set(one.pool.states(self.now_s)) <= {State.FREE, State.VALID}


def test_targets_of_one_prefix_follow_each_other() -> None:
    assert [one.via for one in Fan().plan()] == ["", "d", "e", "f"]
    assert not any(one.striped for one in Fan().plan())


def test_many_targets_of_one_chunk_make_a_tree() -> None:
    moves = [move(target=str(number)) for number in range(14)]
    vias = [one.via for one in spread(moves, chunk_bytes=WHOLE_BYTES)]
    assert vias == ["", "", *(str(number // 2) for number in range(12))]


def test_moves_of_other_prefixes_tenants_or_holders_stay_as_they_are() -> None:
    moves = [
        move(),
        move((21,), target="d"),
        move(tenant="u", target="e"),
        move(holders=("c",), target="f"),
        move(holders=(), target="g"),
        move(holders=(), target="h"),
    ]
    assert spread(moves, CHUNK_BYTES) == tuple(moves)


@pytest.mark.parametrize(
    ("targets", "chunks", "children"),
    # A chain of 14 takes 1 + 13 steps for a chunk, a tree of 4 levels 2 x 4; for 7 chunks it is
    # 20 to 20, and from there on the chain is ahead.
    [(2, 1, 1), (14, 1, 2), (14, 6, 2), (14, 7, 1), (14, 100, 1), (4, 1, 1)],
)
def test_a_chain_where_there_is_much_and_a_tree_where_there_are_many(
    targets: int, chunks: int, children: int
) -> None:
    assert fewest_steps(targets, chunks) == children


@given(targets=st.integers(1, 40), chunk_bytes=st.integers(1, 1000))
def test_nobody_follows_itself_or_one_that_comes_later(targets: int, chunk_bytes: int) -> None:
    moves = spread([move(target=str(number)) for number in range(targets)], chunk_bytes)
    for number, one in enumerate(moves):
        assert one.via == "" or int(one.via) < number


def test_all_targets_get_it_and_nobody_sends_it_twice() -> None:
    lab = Fan()
    results = lab.fan_out()
    assert all(result.ok for result in results)
    assert [result.path.split(" ->")[0] for result in results] == [
        "a",
        "a via d",
        "a via e",
        "a via f",
    ]
    assert lab.sent_bytes == dict.fromkeys("adef", WHOLE_BYTES)
    assert lab.all_hold_it()
    lab.check_all()


def test_a_tree_brings_it_to_all() -> None:
    lab = Fan()
    vias = ("", "", "d", "d")
    plan = [replace(one, via=via) for one, via in zip(lab.plan(), vias, strict=True)]
    assert all(result.ok for result in asyncio.run(lab.fan_executor().run(plan)))
    assert lab.sent_bytes == {"a": 2 * WHOLE_BYTES, "d": 2 * WHOLE_BYTES}
    lab.check_all()


def test_a_second_run_moves_nothing() -> None:
    lab = Fan()
    lab.fan_out()
    assert [(result.ok, result.moved_bytes) for result in lab.fan_out()] == [(True, 0)] * 4


def test_chunks_are_handed_on_before_the_rest_has_come() -> None:
    lab = Fan()
    lab.faults["ad"] = nth(4, stalled)

    async def scenario() -> None:
        running = asyncio.create_task(lab.fan_executor(window=1).run(lab.plan()))
        while lab.sent_bytes["f"] < CHUNK_BYTES:
            await asyncio.sleep(0)
        assert all(one.pool.resident("t", CHAIN) == 0 for one in lab.targets.values())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    soon(scenario())
    lab.check_all()


def test_what_a_forwarder_has_of_it_already_is_handed_on() -> None:
    lab = Fan()
    lab.targets["d"].compute(CHAIN[:2])
    assert all(result.ok for result in lab.fan_out())
    assert lab.sent_bytes == {"a": LAYOUT.block_bytes, **dict.fromkeys("def", WHOLE_BYTES)}
    assert lab.all_hold_it()


def test_a_target_that_has_some_of_it_brings_the_rest() -> None:
    lab = Fan()
    lab.targets["e"].compute(CHAIN[:2])
    assert all(result.ok for result in lab.fan_out())
    assert lab.sent_bytes["d"] == LAYOUT.block_bytes
    lab.check_all()


FAULTS: dict[str, Callable[[Fan], tuple[str, Wire]]] = {
    "wrong bytes from a forwarder": lambda lab: ("de", nth(3, corrupted)),
    "all bytes from a forwarder wrong": lambda lab: ("ef", corrupted),
    "a forwarder can't be reached": lambda lab: ("de", gone),
    "a forwarder goes in the middle": lambda lab: ("de", nth(4, gone)),
    "the last link breaks": lambda lab: ("fg", nth(6, gone)),
    "wrong bytes from the source": lambda lab: ("ad", nth(3, corrupted)),
    "the source breaks off": lambda lab: ("ad", nth(5, gone)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_who_follows_one_that_fails_gets_it_elsewhere(fault: str) -> None:
    lab = Fan()
    way, wire = FAULTS[fault](lab)
    lab.faults[way] = wire
    results = lab.fan_out(holders=("a", "c"))
    assert all(result.ok for result in results)
    assert any(result.retries for result in results)
    assert lab.all_hold_it()
    lab.check_all()


ENDS: dict[str, tuple[Callable[[Fan], tuple[str, Wire]], type[ReplicationError]]] = {
    "a block is recycled at the source": (
        lambda lab: ("ad", nth(3, meanwhile(recycle(lab.a)))),
        Recycled,
    ),
    "the source dies": (
        lambda lab: ("ad", nth(3, meanwhile(lambda: lab.network.pop("a", None)))),
        PeerGone,
    ),
    "leases run out": (
        lambda lab: ("de", nth(3, meanwhile(lambda: setattr(lab, "now_s", 1000.0)))),
        LeaseLost,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_without_a_source_nobody_shows_anything(end: str) -> None:
    make, error = ENDS[end]
    lab = Fan()
    way, wire = make(lab)
    lab.faults[way] = wire
    results = lab.fan_out()
    failed = [result for result in results if not result.ok]
    assert failed
    assert any(type(result.error) is error for result in failed)
    for result in results:
        assert result.ok == lab.targets[result.move.target].holds(CHAIN)
    lab.check_all()


def test_wrong_bytes_at_a_forwarder_are_seen_by_nobody_even_where_it_does_not_look() -> None:
    """A forwarder's memory is broken: what lands there right is handed on wrong."""
    lab = Fan()
    spoilt = lab.targets["d"]

    async def wire(region: Region, piece: Piece, held: memoryview) -> memoryview:
        spoilt.memories[0][:] = bytes(len(spoilt.memories[0]))
        return held

    lab.faults["de"] = nth(2, wire)
    results = lab.fan_out()
    assert type(results[0].error) is Corrupted
    assert [result.ok for result in results[1:]] == [True, True, True]
    lab.check_all()


def test_one_that_has_no_room_is_not_waited_for() -> None:
    lab = Fan()
    others = tuple(range(100, 100 + LAYOUT.slots))
    lab.targets["d"].compute(others, worth=1e9)
    results = lab.fan_out()
    assert type(results[0].error) is NoRoom
    assert [result.ok for result in results[1:]] == [True, True, True]
    assert lab.sent_bytes == dict.fromkeys("aef", WHOLE_BYTES)


@pytest.mark.parametrize("target", NAMES[:3])
@pytest.mark.parametrize("steps", range(0, 120, 8))
def test_one_in_the_chain_is_called_off_and_the_others_get_it(target: str, steps: int) -> None:
    lab = Fan()

    async def scenario() -> None:
        executor = lab.fan_executor()
        running = asyncio.create_task(executor.run(lab.plan()))
        for _ in range(steps):
            await asyncio.sleep(0)
        executor.cancel(target, "t", CHAIN[-1])
        results = await running
        for result in results:
            called_off = type(result.error) is Cancelled
            assert result.ok or (called_off and result.move.target == target)

    soon(scenario())
    lab.check_all()


def test_a_forwarder_that_stops_is_left_when_the_lease_ends() -> None:
    lab = Fan()
    lab.faults["de"] = nth(3, stalled)
    results = lab.fan_out(lease_s=0.3)
    assert results[0].ok
    assert results[1].ok
    assert results[1].retries == 1
    lab.check_all()


def test_another_tenant_can_not_follow() -> None:
    lab = Fan()
    placement = lab.b.pool.place("t", CHAIN, worth=1.0, now_s=0.0)
    with pytest.raises(LeaseLost, match="0 of 3 blocks"):
        lab.b.pool.follow("u", CHAIN, until_s=1.0, now_s=0.0)
    lab.b.pool.abort(placement)


def test_following_tells_how_far_it_has_come() -> None:
    lab = Fan()
    replica: Replica = lab.b

    async def scenario() -> None:
        waiting = asyncio.create_task(replica.forwarder.follow("t", CHAIN, 10.0))
        await asyncio.sleep(0)
        placement = replica.pool.place("t", CHAIN, worth=1.0, now_s=0.0)
        lease = (await waiting).lease
        asked = asyncio.create_task(replica.forwarder.landed(lease, 0))
        await asyncio.sleep(0)
        assert not asked.done()
        replica.pool.land(placement, 1, 70)
        assert await asked == (0, 70, 0)
        for rank in LAYOUT.ranks:
            replica.pool.commit(placement, rank)
        assert await replica.forwarder.landed(lease, 70) == (LAYOUT.block_bytes,) * 3
        await replica.forwarder.release(lease)

    soon(scenario())


def test_who_follows_hears_of_a_block_that_was_given_up() -> None:
    replica = Fan().b

    async def scenario() -> None:
        placement = replica.pool.place("t", CHAIN, worth=1.0, now_s=0.0)
        lease = (await replica.forwarder.follow("t", CHAIN, 10.0)).lease
        asked = asyncio.create_task(replica.forwarder.landed(lease, 0))
        await asyncio.sleep(0)
        replica.pool.abort(placement)
        with pytest.raises(Recycled):
            await asked

    soon(scenario())


def test_a_block_that_a_forwarder_gives_up_is_not_shown_where_nothing_is_digested() -> None:
    lab = Fan()
    lab.holders["a"] = PoolHolder(lab.a.pool, lab.a.regions, lambda: 0.0, digest_every=1000)
    lab.targets["d"].compute(CHAIN)
    lab.faults["de"] = nth(3, meanwhile(recycle(lab.targets["d"])))
    results = lab.fan_out()
    assert results[1].ok
    assert results[1].retries == 1
    assert lab.targets["e"].holds(CHAIN)


@pytest.mark.parametrize(("striped", "largest_bytes"), [(True, 8 << 20), (False, 512 << 10)])
def test_what_others_wait_for_is_read_in_small_chunks(striped: bool, largest_bytes: int) -> None:
    """32 MiB in 32 steps of a window of 2: half a MiB each."""
    layout = Layout(slots=32, layer_bytes=((1 << 20,),))
    network: dict[str, MemoryTransport] = {}
    sizes: list[int] = []

    async def wire(region: Region, piece: Piece, held: memoryview) -> memoryview:
        sizes.append(piece.size_bytes)
        return held

    pools = []
    for name in "ab":
        memory = memoryview(bytearray(layout.region_bytes(0)))
        pools.append((BlockPool(layout, [memory], 1), MemoryTransport(name, network, wire=wire)))
    (source, far), (target, near) = pools
    blocks = tuple(range(32))
    source.commit(source.place("t", blocks, 0.0, 0.0), rank=0)
    region = far.register(host_view(source.memories[0]))
    executor = Executor(
        {"b": Target(target, near)},
        {"a": PoolHolder(source, [region], lambda: 0.0)},
        clock=lambda: 0.0,
        chunk_bytes=8 << 20,
        window=2,
    )
    wanted = Move("t", blocks, ("a",), "b", 32 << 20, inf, 1.0, "", striped=striped)
    (result,) = asyncio.run(executor.run([wanted]))
    assert result.ok
    assert max(sizes) == largest_bytes
