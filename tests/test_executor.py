"""Each step of a copy fails in turn: nothing is to be seen, no slot lost, no lease left."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from math import inf
from random import Random

import pytest

from replication.attempt import Target
from replication.budget import Link
from replication.errors import (
    Busy,
    Cancelled,
    Corrupted,
    LeaseLost,
    NoRoom,
    PeerGone,
    Recycled,
    Refused,
    ReplicationError,
    TransferTimeout,
    TransportError,
)
from replication.executor import Executor
from replication.layout import Layout
from replication.lease import Lease
from replication.peer import Holder, Offer, PoolHolder
from replication.plan import Move
from replication.result import Result
from replication.store import BlockPool, State
from replication.transports.base import Piece, Region, Transport
from replication.transports.memory import (
    MemoryTransport,
    Wire,
    corrupted,
    cut_short,
    gone,
    intact,
    meanwhile,
    nth,
    stalled,
)
from replication.transports.shm import ShmTransport
from replication.transports.tcp import TcpTransport

LAYOUT = Layout(slots=8, layer_bytes=((30, 50), (40,)))
CHAIN = (11, 12, 13)


class Replica:
    """A pool over real memory, reachable by others."""

    def __init__(
        self,
        transport: Transport,
        clock: Callable[[], float],
        allocate: Callable[[int], memoryview] = lambda size_bytes: memoryview(
            bytearray(size_bytes)
        ),
    ) -> None:
        self.transport = transport
        self.memories = [allocate(LAYOUT.region_bytes(rank)) for rank in LAYOUT.ranks]
        self.pool = BlockPool(LAYOUT, self.memories, epoch=1)
        regions = [transport.register(memory) for memory in self.memories]
        self.holder = PoolHolder(self.pool, regions, clock)

    def compute(self, chain: Sequence[int], worth: float = 0.0, tenant: str = "t") -> None:
        """Fill blocks as an engine does: contents follow from tenant, block, rank and layer."""
        placement = self.pool.place(tenant, chain, worth, now_s=0.0)
        for rank in self.pool.layout.ranks:
            for block, slot in zip(placement.hashes, placement.slots, strict=True):
                stretches = self.pool.layout.stretches(rank, slot)
                for layer, (offset, size_bytes) in enumerate(stretches):
                    self.memories[rank][offset : offset + size_bytes] = contents(
                        tenant, block, rank, layer, size_bytes
                    )
            self.pool.commit(placement, rank)

    def holds(self, chain: Sequence[int], tenant: str = "t") -> bool:
        """Return whether all of a chain can be seen, and is right to the byte."""
        if self.pool.resident(tenant, chain) < len(chain):
            return False
        lease = self.pool.lease(tenant, chain, until_s=inf, now_s=0.0)
        self.pool.release(lease)
        for rank in self.pool.layout.ranks:
            for block, slot in zip(chain, lease.slots, strict=True):
                stretches = self.pool.layout.stretches(rank, slot)
                for layer, (offset, size_bytes) in enumerate(stretches):
                    found = self.memories[rank][offset : offset + size_bytes]
                    assert found == contents(tenant, block, rank, layer, size_bytes)
        return True


class Lab:
    """Replicas a and c hold CHAIN, b is where it goes; its wire may do anything."""

    def __init__(self, wire: Wire = intact) -> None:
        self.now_s = 0.0
        self.network: dict[str, MemoryTransport] = {}
        self.a, self.b, self.c = map(self.replica, "abc")
        self.a.compute(CHAIN)
        self.c.compute(CHAIN)
        self.wire = wire
        self.holders: dict[str, Holder] = {"a": self.a.holder, "c": self.c.holder}

    def replica(self, name: str) -> Replica:
        return Replica(MemoryTransport(name, self.network), lambda: self.now_s)

    @property
    def wire(self) -> Wire:
        """What the target's reads go over."""
        return self.network["b"].wire

    @wire.setter
    def wire(self, wire: Wire) -> None:
        self.network["b"].wire = wire

    def executor(
        self,
        chunk_bytes: int = 64,
        lease_s: float = 30.0,
        rates_bytes_s: dict[Link, float] | None = None,
    ) -> Executor:
        return Executor(
            {"b": Target(self.b.pool, self.b.transport)},
            self.holders,
            clock=lambda: self.now_s,
            chunk_bytes=chunk_bytes,
            lease_s=lease_s,
            rates_bytes_s=rates_bytes_s,
        )

    def run(self, *plan: Move) -> list[Result]:
        return asyncio.run(self.executor().run(plan))

    def check_nothing_is_left(self) -> None:
        """All slots are free or valid everywhere, and nobody keeps anything."""
        for replica in (self.a, self.b, self.c):
            assert replica.pool.leases(self.now_s) == 0
            assert set(replica.pool.states(self.now_s)) <= {State.FREE, State.VALID}
            assert replica.pool.states(self.now_s).total() == LAYOUT.slots

    def check_nothing_came(self) -> None:
        assert self.b.pool.missing("t", CHAIN) == CHAIN
        assert self.b.pool.states(self.now_s) == {State.FREE: LAYOUT.slots}
        self.check_nothing_is_left()


def contents(tenant: str, block: int, rank: int, layer: int, size_bytes: int) -> bytes:
    return Random(f"{tenant} {block} {rank} {layer}").randbytes(size_bytes)


def move(
    chain: Sequence[int] = CHAIN,
    holders: tuple[str, ...] = ("a",),
    value_s: float = 1.0,
    deadline_s: float = inf,
    tenant: str = "t",
) -> Move:
    size_bytes = LAYOUT.block_bytes * len(chain)
    return Move(tenant, tuple(chain), holders, "b", size_bytes, deadline_s, value_s, "because")


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


async def start(kind: str, stack: AsyncExitStack) -> Replica:
    if kind == "shm":
        shm = ShmTransport()
        stack.push_async_callback(shm.aclose)
        return Replica(shm, lambda: 0.0, shm.allocate)
    tcp = await TcpTransport.start(b"a token")
    stack.push_async_callback(tcp.aclose)
    return Replica(tcp, lambda: 0.0)


def recycle(replica: Replica) -> Callable[[], None]:
    """Let an engine take a block's slot back and use it for something else."""

    def act() -> None:
        assert replica.pool.reclaim("t", CHAIN[1])
        replica.compute((99,))

    return act


FAULTS: dict[str, tuple[Callable[[Lab], Wire], type[ReplicationError]]] = {
    "the first piece is short": (lambda lab: cut_short, TransportError),
    "a later piece is short": (lambda lab: nth(4, cut_short), TransportError),
    "a bit turns over": (lambda lab: nth(3, corrupted), Corrupted),
    "all bits go wrong": (lambda lab: corrupted, Corrupted),
    "the peer can't be reached": (lambda lab: gone, PeerGone),
    "the peer dies in the middle": (
        lambda lab: nth(3, meanwhile(lambda: lab.network.pop("a"))),
        PeerGone,
    ),
    "a block is recycled in the middle": (lambda lab: nth(3, meanwhile(recycle(lab.a))), Recycled),
    "the lease runs out in the middle": (
        lambda lab: nth(3, meanwhile(lambda: setattr(lab, "now_s", 1000.0))),
        LeaseLost,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_read_leaves_nothing_behind(fault: str) -> None:
    make_wire, error = FAULTS[fault]
    lab = Lab()
    lab.wire = make_wire(lab)
    (result,) = lab.run(move())
    assert type(result.error) is error
    assert result.moved_bytes == 0
    assert result.wasted_bytes > 0
    lab.check_nothing_came()


@pytest.mark.parametrize("fault", FAULTS)
def test_another_holder_is_asked_when_one_fails(fault: str) -> None:
    make_wire, _ = FAULTS[fault]
    lab = Lab()
    bad = make_wire(lab)

    async def wire(region: Region, piece: Piece, held: memoryview) -> bytes | memoryview:
        return await (bad if region.peer == "a" else intact)(region, piece, held)

    lab.wire = wire
    (result,) = lab.run(move(holders=("a", "c")))
    assert result.ok
    assert result.retries == 1
    assert result.path == "c -> b over MemoryTransport"
    assert result.wasted_bytes > 0
    assert lab.b.holds(CHAIN)
    lab.check_nothing_is_left()


class Faulty:
    """A holder that fails at one of the three things it is asked."""

    def __init__(self, holder: Holder, at: str, error: Exception | None) -> None:
        self._holder = holder
        self._at = at
        self._error = error

    async def lease(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        await self._fail("lease")
        return await self._holder.lease(tenant, chain, length_s)

    async def verify(self, lease: Lease) -> None:
        await self._fail("verify")
        await self._holder.verify(lease)

    async def release(self, lease: Lease) -> None:
        await self._holder.release(lease)
        await self._fail("release")

    async def _fail(self, at: str) -> None:
        if at == self._at:
            if self._error is None:
                await asyncio.Event().wait()
            else:
                raise self._error


@pytest.mark.parametrize("at", ["lease", "verify"])
@pytest.mark.parametrize("error", [PeerGone("died"), LeaseLost("restarted"), Refused("no")])
def test_a_holder_that_fails_leaves_nothing_behind(at: str, error: ReplicationError) -> None:
    lab = Lab()
    lab.holders["a"] = Faulty(lab.a.holder, at, error)
    (result,) = lab.run(move())
    assert result.error is error
    lab.check_nothing_came()


def test_a_holder_that_dies_before_it_is_told_of_the_end_changes_nothing() -> None:
    lab = Lab()
    lab.holders["a"] = Faulty(lab.a.holder, "release", PeerGone("died"))
    (result,) = lab.run(move())
    assert result.ok
    assert lab.b.holds(CHAIN)


@pytest.mark.parametrize("at", ["lease", "verify"])
def test_a_holder_that_hangs_is_left_for_another(at: str) -> None:
    lab = Lab()
    lab.holders["a"] = Faulty(lab.a.holder, at, None)
    executor = lab.executor(lease_s=0.4)
    (result,) = asyncio.run(executor.run([move(holders=("a", "c"))]))
    assert result.ok
    assert result.retries == 1
    assert lab.b.holds(CHAIN)


OfferChange = Callable[[Offer], Offer]
LIES: dict[str, OfferChange] = {
    "another layout": lambda offer: replace(offer, layout=Layout(8, ((80,), (40,)))),
    "a block too few": lambda offer: replace(
        offer, lease=replace(offer.lease, slots=offer.lease.slots[1:])
    ),
    "a rank too few": lambda offer: replace(offer, regions=offer.regions[1:]),
    "no digests": lambda offer: replace(offer, digests=()),
    "a digest too few": lambda offer: replace(offer, digests=((1, 2), (1, 2))),
    "a slot outside": lambda offer: replace(
        offer, lease=replace(offer.lease, slots=(0, 1, LAYOUT.slots))
    ),
    "a slot before": lambda offer: replace(offer, lease=replace(offer.lease, slots=(0, 1, -1))),
}


class Liar(Faulty):
    """A holder whose offers are not what they should be."""

    def __init__(self, holder: Holder, change: OfferChange) -> None:
        super().__init__(holder, "", None)
        self._change = change
        self._real: Lease | None = None

    async def lease(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        offer = await super().lease(tenant, chain, length_s)
        self._real = offer.lease
        return self._change(offer)

    async def release(self, lease: Lease) -> None:
        assert self._real is not None
        await super().release(self._real)


@pytest.mark.parametrize("lie", LIES)
def test_an_offer_that_can_not_be_is_refused(lie: str) -> None:
    lab = Lab()
    lab.holders["a"] = Liar(lab.a.holder, LIES[lie])
    (result,) = lab.run(move())
    assert type(result.error) is Refused
    lab.check_nothing_came()


def test_what_the_holder_has_lost_is_not_brought() -> None:
    lab = Lab()
    lab.a.pool.reclaim("t", CHAIN[2])
    (result,) = lab.run(move())
    assert type(result.error) is LeaseLost
    lab.check_nothing_came()


def test_another_tenant_gets_nothing_of_it() -> None:
    lab = Lab()
    (result,) = lab.run(move(tenant="u"))
    assert type(result.error) is LeaseLost
    assert result.wasted_bytes == 0
    lab.check_nothing_came()


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


@pytest.mark.parametrize("deadline_s", [-1.0, 0.0, 0.05])
def test_after_its_deadline_a_move_has_left_nothing_behind(deadline_s: float) -> None:
    lab = Lab(wire=nth(2, stalled))
    (result,) = lab.run(move(holders=("a", "c"), deadline_s=deadline_s))
    assert type(result.error) is TransferTimeout
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


def soon(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, timeout=60.0))


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
