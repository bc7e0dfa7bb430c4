"""Copies, engines, restarts and faults in any order: wrong bytes are never visible.

Copies are striped over two sources, or follow each other from b to d. Set BTB_MACHINE_STEPS to take
more or fewer steps than the usual 10,000.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from replication.errors import Busy, NoRoom, PeerGone
from replication.executor import Executor
from replication.forwarding import PoolForwarder
from replication.layout import Layout
from replication.lease import Lease
from replication.multicast import spread
from replication.peer import Offer, PoolHolder
from replication.plan import Move
from replication.result import Result
from replication.store import BlockPool, State
from replication.target import Target
from replication.transports.base import Piece, Region
from replication.transports.memory import MemoryTransport, Wire, corrupted, cut_short, gone, intact

LAYOUT = Layout(slots=6, layer_bytes=((4, 6), (5,)))
NAMES = ("a", "b", "c", "d")
TARGETS = ("b", "d")
BLOCKS = range(1, 9)
CHAINS = ((1, 2, 3), (1, 2, 4, 5), (6, 7), (8,))
LEASE_S = 10.0

replicas = st.sampled_from(NAMES)
sources = st.sampled_from("ac")
chains = st.sampled_from([chain[:end] for chain in CHAINS for end in range(1, len(chain) + 1)])
tenants = st.sampled_from(["t", "u"])
worths = st.sampled_from([0.0, 1.0, 2.0])
faults = st.sampled_from([corrupted, cut_short, gone])
picks = st.integers(0, 50)
flows = st.integers(0, 10)
flags = st.booleans()


def contents(tenant: str, block: int, rank: int, layer: int, size_bytes: int) -> bytes:
    return Random(f"{tenant} {block} {rank} {layer}").randbytes(size_bytes)


class Replica:
    """Memory that stays, and a pool and a transport over it that may start anew."""

    def __init__(self, name: str, network: dict[str, MemoryTransport]) -> None:
        self.name = name
        self.memories = [memoryview(bytearray(LAYOUT.region_bytes(r))) for r in LAYOUT.ranks]
        self.epoch = 0
        self.network = network
        self.start()

    def start(self) -> None:
        self.epoch += 1
        self.transport = MemoryTransport(self.name, self.network, self.epoch)
        self.pool = BlockPool(LAYOUT, self.memories, self.epoch)
        self.regions = [self.transport.register(memory) for memory in self.memories]

    def compute(self, tenant: str, chain: Sequence[int], worth: float, now_s: float) -> None:
        placement = self.pool.place(tenant, chain, worth, now_s)
        for rank in LAYOUT.ranks:
            for block, slot in zip(placement.hashes, placement.slots, strict=True):
                for layer, (offset, size_bytes) in enumerate(LAYOUT.stretches(rank, slot)):
                    self.memories[rank][offset : offset + size_bytes] = contents(
                        tenant, block, rank, layer, size_bytes
                    )
        for rank in LAYOUT.ranks:
            self.pool.commit(placement, rank)

    def check_what_can_be_seen(self, now_s: float) -> None:
        for tenant in ("t", "u"):
            for block in BLOCKS:
                if self.pool.missing(tenant, (block,)):
                    continue
                lease = self.pool.lease(tenant, (block,), inf, now_s)
                self.pool.release(lease)
                for rank in LAYOUT.ranks:
                    stretches = LAYOUT.stretches(rank, lease.slots[0])
                    for layer, (offset, size_bytes) in enumerate(stretches):
                        found = self.memories[rank][offset : offset + size_bytes]
                        assert found == contents(tenant, block, rank, layer, size_bytes)


class Channel:
    """The way to whoever answers for a replica at that moment; each call waits at a gate."""

    def __init__(self, machine: "Replication", name: str) -> None:
        self._machine = machine
        self._name = name

    async def lease(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        return await (await self._reach()).lease(tenant, chain, length_s)

    async def verify(self, lease: Lease) -> None:
        await (await self._reach()).verify(lease)

    async def release(self, lease: Lease) -> None:
        replica = self._machine.replicas[self._name]
        replica.pool.release(lease)

    async def _reach(self) -> PoolHolder:
        if await self._machine.gate() is gone:
            raise PeerGone("cut off")
        replica = self._machine.replicas[self._name]
        return PoolHolder(replica.pool, replica.regions, lambda: self._machine.now_s)


class Onward:
    """The way to a target that hands on; each call waits at a gate, and for nothing else."""

    def __init__(self, machine: "Replication", name: str) -> None:
        self._machine = machine
        self._name = name

    async def follow(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        await self._pass()
        return await self._forwarder().follow(tenant, chain, length_s)

    async def landed(self, lease: Lease, beyond_bytes: int) -> tuple[int, ...]:
        await self._pass()
        return await self._forwarder().landed(lease, beyond_bytes)

    async def verify(self, lease: Lease) -> None:
        await self._pass()
        await self._forwarder().verify(lease)

    async def release(self, lease: Lease) -> None:
        await self._forwarder().release(lease)

    async def _pass(self) -> None:
        if await self._machine.gate() is gone:
            raise PeerGone("cut off")

    def _forwarder(self) -> PoolForwarder:
        replica = self._machine.replicas[self._name]
        return PoolForwarder(
            replica.pool, replica.regions, lambda: self._machine.now_s, patience_s=0.0
        )


class Replication(RuleBasedStateMachine):
    """Replicas b and d are copied to from a and c; everything waits at gates that rules open."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now_s = 0.0
        self.gates: list[asyncio.Future[Wire]] = []
        network: dict[str, MemoryTransport] = {}
        self.replicas = {name: Replica(name, network) for name in NAMES}
        self.runs: list[tuple[Move, asyncio.Task[list[Result]]]] = []
        self.start_executor()

    def start_executor(self) -> None:
        for name in TARGETS:
            self.replicas[name].transport.wire = self.wire
        self.executor = Executor(
            {
                name: Target(self.replicas[name].pool, self.replicas[name].transport)
                for name in TARGETS
            },
            {name: Channel(self, name) for name in ("a", "c")},
            forwarders={name: Onward(self, name) for name in TARGETS},
            clock=lambda: self.now_s,
            chunk_bytes=7,
            window=2,
            stripes=2,
            lease_s=LEASE_S,
        )

    async def gate(self) -> Wire:
        gate: asyncio.Future[Wire] = self.loop.create_future()
        self.gates.append(gate)
        try:
            return await gate
        finally:
            self.gates.remove(gate)

    async def wire(self, region: Region, piece: Piece, held: memoryview) -> bytes | memoryview:
        return await (await self.gate())(region, piece, held)

    def flow(self, pick: int, count: int) -> None:
        """Let so many calls and pieces through, and all happen that follows from each."""

        async def spin() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        self.loop.run_until_complete(spin())
        for _ in range(count):
            waiting = [gate for gate in self.gates if not gate.done()]
            if waiting:
                waiting[pick % len(waiting)].set_result(intact)
                self.loop.run_until_complete(spin())

    @rule(name=replicas, tenant=tenants, chain=chains, worth=worths)
    def an_engine_computes(
        self, name: str, tenant: str, chain: tuple[int, ...], worth: float
    ) -> None:
        with suppress(Busy, NoRoom):
            self.replicas[name].compute(tenant, chain, worth, self.now_s)

    def start(self, moves: Sequence[Move]) -> None:
        for move in moves:
            self.runs.append((move, self.loop.create_task(self.executor.run([move]))))

    def move(self, tenant: str, chain: tuple[int, ...], first: str, worth: float) -> Move:
        size_bytes = LAYOUT.block_bytes * len(chain)
        holders = (first, "c" if first == "a" else "a")
        return Move(tenant, chain, holders, "b", size_bytes, inf, worth * size_bytes, "")

    @rule(
        tenant=tenants, chain=chains, first=sources, worth=worths, both=st.booleans(), flows=flows
    )
    def a_copy_starts(
        self, tenant: str, chain: tuple[int, ...], first: str, worth: float, both: bool, flows: int
    ) -> None:
        move = self.move(tenant, chain, first, worth)
        for name in move.holders if both else (first,):
            self.an_engine_computes(name, tenant, chain, worth)
        self.start([move])
        self.flow(0, flows)

    @rule(tenant=tenants, chain=chains, first=sources, pick=picks, flows=flows)
    def a_multicast_starts(
        self, tenant: str, chain: tuple[int, ...], first: str, pick: int, flows: int
    ) -> None:
        move = self.move(tenant, chain, first, 1.0)
        self.an_engine_computes(first, tenant, chain, 1.0)
        self.start(spread([move, replace(move, target="d")], chunk_bytes=7))
        self.flow(pick, flows)

    @rule(pick=picks, fault=faults, flows=flows)
    def a_call_or_a_piece_goes_wrong(self, pick: int, fault: Wire, flows: int) -> None:
        waiting = [gate for gate in self.gates if not gate.done()]
        if waiting:
            waiting[pick % len(waiting)].set_result(fault)
        self.flow(pick, flows)

    @rule(tenant=tenants, chain=chains, first=sources, pick=picks, fault=faults, flows=flows)
    def a_copy_starts_and_meets_a_fault(
        self,
        tenant: str,
        chain: tuple[int, ...],
        first: str,
        pick: int,
        fault: Wire,
        flows: int,
    ) -> None:
        self.a_copy_starts(tenant, chain, first, 1.0, pick % 2 == 0, flows)
        self.a_call_or_a_piece_goes_wrong(pick, fault, 20)

    @rule(pick=picks, flows=flows)
    def things_go_on(self, pick: int, flows: int) -> None:
        self.flow(pick, 2 * flows)

    @rule(name=replicas, tenant=tenants, block=st.sampled_from(BLOCKS), other=chains)
    def an_engine_takes_a_slot_back(
        self, name: str, tenant: str, block: int, other: tuple[int, ...]
    ) -> None:
        if self.replicas[name].pool.reclaim(tenant, block):
            self.an_engine_computes(name, tenant, other, worth=1.0)

    @rule(pick=picks, flows=flows)
    def a_copy_is_called_off(self, pick: int, flows: int) -> None:
        if self.runs:
            move, _ = self.runs[pick % len(self.runs)]
            self.executor.cancel(*move.key)
            self.flow(pick, flows)

    @rule(passes_s=st.sampled_from([1.0, LEASE_S / 2, LEASE_S]))
    def time_passes(self, passes_s: float) -> None:
        self.now_s += passes_s

    @rule(name=sources, flows=flows)
    def a_source_starts_anew(self, name: str, flows: int) -> None:
        self.replicas[name].start()
        self.flow(0, flows)

    @rule()
    def the_targets_start_anew(self) -> None:
        self.loop.run_until_complete(self.executor.aclose())
        for name in TARGETS:
            self.check_all_have_ended(self.replicas[name])
            self.replicas[name].start()
        self.start_executor()

    @invariant()
    def what_can_be_seen_is_right(self) -> None:
        for replica in self.replicas.values():
            replica.check_what_can_be_seen(self.now_s)

    @invariant()
    def no_slot_is_lost(self) -> None:
        for name, replica in self.replicas.items():
            states = replica.pool.states(self.now_s)
            assert states.total() == LAYOUT.slots
            most = sum(
                len(move.chain) for move, run in self.runs if move.target == name and not run.done()
            )
            assert states[State.FILLING] <= most

    @invariant()
    def a_copy_that_went_well_brought_no_more_than_its_prefix(self) -> None:
        for move, run in self.runs:
            if run.done():
                (result,) = run.result()
                assert result.moved_bytes <= move.size_bytes
                assert result.ok or result.moved_bytes == 0
        self.runs = [one for one in self.runs if not one[1].done()]

    def check_all_have_ended(self, replica: Replica) -> None:
        assert replica.pool.leases(self.now_s) == 0
        assert set(replica.pool.states(self.now_s)) <= {State.FREE, State.VALID}

    def teardown(self) -> None:
        for _ in range(1000):
            if all(run.done() for _, run in self.runs):
                break
            self.flow(pick=0, count=5)
        assert all(run.done() for _, run in self.runs)
        self.what_can_be_seen_is_right()
        self.loop.run_until_complete(self.executor.aclose())
        self.loop.close()
        self.now_s += LEASE_S
        for replica in self.replicas.values():
            self.check_all_have_ended(replica)


TestReplication = Replication.TestCase
TestReplication.settings = settings(
    max_examples=int(os.environ.get("BTB_MACHINE_STEPS", "10000")) // 50,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
