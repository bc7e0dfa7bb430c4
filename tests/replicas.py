"""Replicas over real memory, and what goes wrong between them: shared by tests of copies."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from math import inf
from random import Random

from replication.budget import Link
from replication.errors import (
    Corrupted,
    LeaseLost,
    PeerGone,
    Recycled,
    ReplicationError,
    TransportError,
)
from replication.executor import Executor
from replication.forwarding import Forwarder, PoolForwarder
from replication.layout import Layout
from replication.lease import Lease
from replication.peer import Holder, Offer, PoolHolder
from replication.plan import Move
from replication.result import Result
from replication.store import BlockPool, State
from replication.target import Target
from replication.transports.base import Transport
from replication.transports.memory import (
    MemoryTransport,
    Wire,
    corrupted,
    cut_short,
    gone,
    intact,
    meanwhile,
    nth,
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
        self.regions = [transport.register(memory) for memory in self.memories]
        self.holder = PoolHolder(self.pool, self.regions, clock)
        self.forwarder = PoolForwarder(self.pool, self.regions, clock)

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
        self.forwarders: dict[str, Forwarder] = {}

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
        window: int = 2,
        stripes: int = 1,
    ) -> Executor:
        return Executor(
            {"b": Target(self.b.pool, self.b.transport)},
            self.holders,
            forwarders=self.forwarders,
            clock=lambda: self.now_s,
            chunk_bytes=chunk_bytes,
            lease_s=lease_s,
            window=window,
            stripes=stripes,
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
    target: str = "b",
    striped: bool = True,
) -> Move:
    return Move(
        tenant,
        tuple(chain),
        holders,
        target,
        LAYOUT.block_bytes * len(chain),
        deadline_s,
        value_s,
        "because",
        striped=striped,
    )


async def start(kind: str, stack: AsyncExitStack) -> Replica:
    if kind == "shm":
        shm = ShmTransport()
        stack.push_async_callback(shm.aclose)
        return Replica(shm, lambda: 0.0, shm.allocate)
    tcp = await TcpTransport.start(b"a token")
    stack.push_async_callback(tcp.aclose)
    return Replica(tcp, lambda: 0.0)


def soon(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, timeout=60.0))


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
