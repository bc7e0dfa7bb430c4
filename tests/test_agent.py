"""Agents over real sockets in one process: what they do for each other and for controllers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replication import agent as agents
from replication.agent import Agent, new_epoch
from replication.control.address import Address
from replication.control.channel import Channel
from replication.control.messages import (
    AskCancel,
    AskCopy,
    AskDrop,
    AskEvents,
    AskFill,
    AskLease,
    AskList,
    AskRelease,
    AskVerify,
    Order,
    Request,
)
from replication.control.remote import AgentClient, AgentHolder
from replication.errors import (
    Busy,
    Cancelled,
    Corrupted,
    LeaseLost,
    NoRoom,
    PeerGone,
    Refused,
    ReplicationError,
    TransferTimeout,
    TransportError,
)
from replication.events import AllBlocksCleared, BlockRemoved, BlockStored
from replication.layout import Layout
from replication.lease import Lease
from replication.multicast import spread
from replication.peer import Offer
from replication.plan import Move
from replication.result import Result
from replication.store import State
from replication.transports.base import Piece, Region
from replication.transports.choice import AutoTransport
from replication.transports.memory import MemoryTransport, Wire, corrupted, delayed, intact, stalled
from replication.transports.verbs_device import device_names

TOKEN = b"a token of 24 characters"
LAYOUT = Layout(slots=8, layer_bytes=((30, 50), (40,)))
CHAIN = (2**64 - 1, 12, 13)
"""The first hash is the largest there is."""
SIZE_BYTES = 360


class Lab:
    """Agents `a`, `c` (which hold CHAIN) and `b`, and controllers of them, that end together."""

    def __init__(self) -> None:
        self.network: dict[str, MemoryTransport] = {}
        self.agents: dict[str, Agent] = {}
        self.clients: list[AgentClient] = []
        self.wire: Wire = intact

    async def start(
        self,
        name: str,
        kind: str = "memory",
        *,
        layout: Layout = LAYOUT,
        address: Address | None = None,
        token: bytes = TOKEN,
        lease_s: float = 30.0,
        trial: bool = True,
    ) -> AgentClient:
        epoch = new_epoch()
        transport: MemoryTransport | AutoTransport
        if kind == "memory":
            transport = MemoryTransport(name, self.network, epoch, self._wire)
            memories = [memoryview(bytearray(layout.region_bytes(rank))) for rank in layout.ranks]
        else:
            transport = await AutoTransport.start(TOKEN, kind=kind, epoch=epoch)
            memories = [transport.allocate(layout.region_bytes(rank)) for rank in layout.ranks]
        self.agents[name] = Agent(
            address or Address("127.0.0.1", 0),
            token,
            layout,
            memories,
            transport,
            epoch=epoch,
            block_tokens=16,
            lease_s=lease_s,
            trial=trial,
        )
        return self.client(name, token)

    def client(self, name: str, token: bytes = TOKEN) -> AgentClient:
        self.clients.append(AgentClient(self.agents[name].address, token, patience_s=2.0))
        return self.clients[-1]

    def address(self, name: str) -> str:
        return str(self.agents[name].address)

    def move(
        self,
        *holders: str,
        tenant: str = "t",
        chain: Sequence[int] = CHAIN,
        deadline_s: float = 20.0,
        value_s: float = 1.0,
    ) -> Move:
        addresses = tuple(self.address(name) if name in self.agents else name for name in holders)
        size_bytes = LAYOUT.block_bytes * len(chain)
        return Move(tenant, tuple(chain), addresses, "b", size_bytes, deadline_s, value_s, "why")

    def blocks(self, name: str, chain: Sequence[int] = CHAIN, tenant: str = "t") -> bytes:
        """Return what an agent's memory holds of a chain."""
        pool = self.agents[name].pool
        now_s = asyncio.get_running_loop().time()
        lease = pool.lease(tenant, chain, inf, now_s)
        pool.release(lease)
        return b"".join(
            pool.memories[rank][offset : offset + size_bytes]
            for slot in lease.slots
            for rank in pool.layout.ranks
            for offset, size_bytes in pool.layout.stretches(rank, slot)
        )

    def check_nothing_is_left(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for agent in self.agents.values():
            assert agent.pool.leases(now_s) == 0
            states = agent.pool.states(now_s)
            assert set(states) <= {State.FREE, State.VALID}
            assert states.total() == agent.pool.layout.slots
            assert agent.listing().copies == 0

    def check_nothing_came(self) -> None:
        self.check_nothing_is_left()
        assert self.agents["b"].pool.states(0.0) == {State.FREE: LAYOUT.slots}

    async def aclose(self) -> None:
        for client in self.clients:
            client.close()
        for agent in self.agents.values():
            await agent.aclose()

    async def _wire(self, region: Region, piece: Piece, held: memoryview) -> bytes | memoryview:
        return await self.wire(region, piece, held)


def talk(steps: Callable[[Lab, AgentClient], Awaitable[None]], kind: str = "memory") -> None:
    """Start three agents, take `steps` with a client of `b`, and see that nothing is left."""

    async def run() -> None:
        lab = Lab()
        try:
            for name in "ac":
                client = await lab.start(name, kind)
                assert await client.fill("t", CHAIN, seed=1) == 3
            target = await lab.start("b", kind)
            await steps(lab, target)
            lab.check_nothing_is_left()
        finally:
            await lab.aclose()

    asyncio.run(run())


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not happened():
            await asyncio.sleep(0.005)


async def copied(client: AgentClient, move: Move) -> Result:
    (result,) = await client.copy([move], {}, now_s=0.0)
    return result


def failed(result: Result, kind: type[ReplicationError]) -> bool:
    assert type(result.error) is kind, result
    assert result.moved_bytes == 0
    return True


KINDS = ["memory", "shm", "tcp", "auto"]
with suppress(TransportError):
    KINDS += ["verbs"] if device_names() else []


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_is_exact_and_asked_for_again_moves_nothing(kind: str) -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        result = await copied(b, lab.move("a"))
        assert result.ok, result.error
        assert (result.moved_bytes, result.wasted_bytes, result.retries) == (SIZE_BYTES, 0, 0)
        assert result.path.startswith(f"{lab.address('a')} -> {lab.address('b')} over ")
        assert lab.blocks("b") == lab.blocks("a")
        assert len(set(lab.blocks("b"))) > 100
        again = await copied(b, lab.move("a"))
        assert (again.ok, again.moved_bytes, again.path) == (True, 0, "")

    talk(steps, kind)


def test_replicas_are_found_by_the_addresses_of_their_agents() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        move = replace(lab.move(), holders=("r1",))
        with pytest.raises(Refused, match="'r1' is no address"):
            await b.copy([move], {}, now_s=0.0)
        (result,) = await b.copy([move], {"r1": lab.address("a")}, now_s=0.0)
        assert (result.ok, result.move) == (True, move)

    talk(steps)


@pytest.mark.parametrize("kind", ["memory", "tcp", "shm"])
def test_agents_hand_a_prefix_on_to_each_other_as_it_arrives(kind: str) -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        clients = {"b": b, "d": await lab.start("d", kind), "e": await lab.start("e", kind)}
        plan = spread([replace(lab.move("a"), target=name) for name in clients], chunk_bytes=50)
        addresses = {name: lab.address(name) for name in clients}
        now_s = asyncio.get_running_loop().time()
        moves = [replace(one, deadline_s=now_s + 20.0) for one in plan]
        found = await asyncio.gather(
            *(clients[one.target].copy([one], addresses, now_s) for one in moves)
        )
        assert [result.ok for (result,) in found] == [True] * 3
        assert [" via " in result.path for (result,) in found] == [False, True, True]
        for name in clients:
            assert lab.blocks(name) == lab.blocks("a")

    talk(steps, kind)


def test_what_came_of_each_move_is_told_in_their_order() -> None:
    """Of three moves the second is of a prefix that nobody holds; the third is worth most."""

    async def steps(lab: Lab, b: AgentClient) -> None:
        moves = [
            lab.move("a"),
            lab.move("a", chain=(77,)),
            lab.move("c", chain=CHAIN[:1], value_s=9.0),
        ]
        assert await b.copy([], {}, now_s=0.0) == []
        first, second, third = await b.copy(moves, {}, now_s=0.0)
        assert [one.move for one in (first, second, third)] == moves
        assert first.ok
        assert failed(second, LeaseLost)
        assert third.ok
        assert first.moved_bytes + third.moved_bytes == SIZE_BYTES

    talk(steps)


def test_a_holder_that_is_gone_is_passed_over() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        move = lab.move("a", "c")
        await lab.agents["a"].aclose()
        result = await copied(b, move)
        assert (result.ok, result.retries) == (True, 1)
        assert lab.blocks("b") == lab.blocks("c")

    talk(steps)


def test_without_a_holder_that_is_there_the_copy_fails_with_the_reason() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        move = lab.move("a")
        await lab.agents["a"].aclose()
        result = await copied(b, move)
        assert failed(result, PeerGone)
        assert isinstance(result.error, PeerGone)
        assert result.error.errno == 111
        lab.check_nothing_came()

    talk(steps)


def test_two_controllers_at_once_bring_one_copy() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        lab.wire = delayed(0.01)
        other = lab.client("b")
        results = await asyncio.gather(
            copied(b, lab.move("a")),
            copied(other, lab.move("c")),
            copied(other, lab.move("a", chain=CHAIN[:2])),
        )
        assert all(one.ok for one in results)
        assert sum(one.moved_bytes for one in results) == SIZE_BYTES
        assert lab.blocks("b") == lab.blocks("a")

    talk(steps)


def test_another_tenants_prefix_looks_like_one_that_isnt_there() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        theirs = await copied(b, lab.move("a", tenant="u"))
        assert failed(theirs, LeaseLost)
        none = await copied(b, lab.move("a", chain=(1, 2, 3)))
        assert str(theirs.error) == str(none.error)
        lab.check_nothing_came()
        assert await lab.client("a").drop("u", CHAIN) == 0
        assert (await copied(b, lab.move("a"))).ok
        holder = AgentHolder(lab.agents["b"].address, TOKEN)
        with pytest.raises(LeaseLost):
            await holder.lease("u", CHAIN, 1.0)
        holder.close()

    talk(steps)


@pytest.mark.parametrize(
    ("wire", "error"), [(corrupted, Corrupted), (stalled, TransferTimeout)], ids=["bad", "stalled"]
)
def test_a_copy_that_goes_wrong_leaves_nothing(wire: Wire, error: type[ReplicationError]) -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        lab.wire = wire
        assert failed(await copied(b, lab.move("a", deadline_s=0.3)), error)
        lab.check_nothing_came()

    talk(steps)


@pytest.mark.parametrize("left_s", [0.0, -1.0, -inf])
def test_a_deadline_that_has_passed_moves_nothing(left_s: float) -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        assert failed(await copied(b, lab.move("a", deadline_s=left_s)), TransferTimeout)
        lab.check_nothing_came()

    talk(steps)


def test_a_copy_is_called_off_by_another_controller() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        lab.wire = stalled
        copying = asyncio.create_task(copied(b, lab.move("a")))
        other = lab.client("b")
        pool = lab.agents["b"].pool
        await until(lambda: pool.states(0.0)[State.FILLING] == 3)
        assert (await other.list()).copies == 1
        assert await other.cancel("u", CHAIN[-1]) == 0
        assert await other.cancel("t", CHAIN[0]) == 0
        assert await other.cancel("t", CHAIN[-1]) == 1
        assert failed(await copying, Cancelled)
        lab.check_nothing_came()

    talk(steps)


def test_a_copy_goes_on_when_its_controller_has_gone() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        lab.wire = delayed(0.02)
        copying = asyncio.create_task(copied(b, lab.move("a")))
        await until(lambda: lab.agents["b"].listing().copies == 1)
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)
        await until(lambda: lab.agents["b"].listing().copies == 0)
        assert lab.blocks("b") == lab.blocks("a")

    talk(steps)


def test_a_full_target_refuses_and_keeps_what_it_has() -> None:
    """The target's eight slots are leased, or worth more than the copy."""

    async def steps(lab: Lab, b: AgentClient) -> None:
        mine = tuple(range(100, 108))
        assert await b.fill("t", mine, seed=2) == 8
        before = lab.blocks("b", mine)
        holder = AgentHolder(lab.agents["b"].address, TOKEN)
        offer = await holder.lease("t", mine[:6], 20.0)
        assert failed(await copied(b, lab.move("a")), NoRoom)
        assert lab.blocks("b", mine) == before
        await holder.release(offer.lease)
        holder.close()
        assert (await copied(b, lab.move("a"))).ok
        assert lab.agents["b"].pool.resident("t", mine) == 5

    talk(steps)


def test_a_source_cut_in_another_way_is_refused() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        other = await lab.start("d", layout=Layout(slots=8, layer_bytes=((40, 40), (40,))))
        await other.fill("t", CHAIN, seed=1)
        assert failed(await copied(b, lab.move("d")), Refused)
        lab.check_nothing_came()

    talk(steps)


def test_a_source_with_another_token_is_refused_and_passed_over() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        await lab.start("d", token=b"another of 24 characters")
        result = await copied(b, lab.move("d"))
        assert failed(result, Refused)
        assert "another token" in str(result.error)
        assert (await copied(b, lab.move("d", "a"))).ok

    talk(steps)


def test_who_has_no_token_gets_nothing_out_of_an_agent() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        stranger = lab.client("a", token=b"")
        for ask in (stranger.list(), stranger.drop("t", CHAIN), stranger.events(-1, 0)):
            with pytest.raises(Refused):
                await ask
        assert lab.agents["a"].pool.resident("t", CHAIN) == 3

    talk(steps)


def test_a_lease_ends_by_itself_and_is_refused_then() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        holder = AgentHolder(lab.agents["a"].address, TOKEN)
        offer = await holder.lease("t", CHAIN, 0.2)
        await holder.verify(offer.lease)
        assert (await lab.client("a").list()).leases == 1
        assert await lab.client("a").drop("t", CHAIN) == 0
        pool, loop = lab.agents["a"].pool, asyncio.get_running_loop()
        await until(lambda: pool.leases(loop.time()) == 0)
        with pytest.raises(LeaseLost):
            await holder.verify(offer.lease)
        await holder.release(offer.lease)
        holder.close()

    talk(steps)


def test_an_agent_that_starts_anew_refuses_what_it_promised_before() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        before = lab.agents["a"]
        holder = AgentHolder(before.address, TOKEN)
        offer = await holder.lease("t", CHAIN, 20.0)
        await before.aclose()
        again = await lab.start("a", address=before.address)
        await again.fill("t", CHAIN, seed=1)
        assert (await again.list()).epoch != offer.lease.epoch
        with pytest.raises(LeaseLost, match="epoch"):
            await holder.verify(offer.lease)
        into = memoryview(bytearray(10))
        with pytest.raises(TransportError):
            await lab.network["b"].read(offer.regions[0], [Piece(0, 0, 10)], into, 5.0)
        assert not any(into)
        await holder.release(offer.lease)
        holder.close()
        assert (await copied(b, lab.move("a"))).ok

    talk(steps)


def test_a_source_that_starts_anew_in_the_middle_of_a_copy_is_noticed() -> None:
    """Its memory could hold anything by now, so the copy is refused and another holder asked."""

    async def steps(lab: Lab, b: AgentClient) -> None:
        go = asyncio.Event()

        async def waits(region: Region, piece: Piece, held: memoryview) -> memoryview:
            await go.wait()
            return held

        lab.wire = waits
        address = lab.agents["a"].address
        copying = asyncio.create_task(copied(b, lab.move("a", "c")))
        await until(lambda: lab.agents["b"].pool.states(0.0)[State.FILLING] == 3)
        await lab.agents["a"].aclose()
        await (await lab.start("a", address=address)).fill("t", CHAIN, seed=666)
        go.set()
        result = await copying
        assert (result.ok, result.retries) == (True, 1)
        assert lab.blocks("b") == lab.blocks("c") != lab.blocks("a")

    talk(steps)


def test_bytes_are_made_up_only_where_that_was_allowed() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        real = await lab.start("d", trial=False)
        with pytest.raises(Refused, match="not started for trying out"):
            await real.fill("t", CHAIN, seed=1)
        assert lab.agents["d"].pool.resident("t", CHAIN) == 0

    talk(steps)


def test_made_up_bytes_follow_from_seed_tenant_and_hash() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        assert lab.blocks("a") == lab.blocks("c")
        await b.fill("t", CHAIN, seed=2)
        assert lab.blocks("b") != lab.blocks("a")
        assert await b.fill("t", CHAIN, seed=3) == 0

    talk(steps)


def test_the_list_counts_slots_tenants_and_whether_copies_were_used() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        assert (await copied(b, lab.move("a"))).ok
        await b.fill("u", (5,), seed=1)
        holder = AgentHolder(lab.agents["b"].address, TOKEN)
        offer = await holder.lease("t", CHAIN[:2], 20.0)
        there = await b.list()
        assert there.slots == {"free": 4, "leased": 2, "valid": 2}
        assert (there.leases, there.copies, there.block_bytes, there.block_tokens) == (
            1,
            0,
            120,
            16,
        )
        assert [(one.tenant, one.blocks, one.copied, one.used) for one in there.tenants] == [
            ("t", 3, 3, 2),
            ("u", 1, 0, 0),
        ]
        await holder.release(offer.lease)
        holder.close()
        assert await b.drop("t", CHAIN) == 3
        assert (await b.list()).slots == {"free": 7, "valid": 1}

    talk(steps)


def test_who_follows_an_agents_events_learns_of_copies_evictions_and_restarts() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        start = await b.events(-1, 0)
        assert start.snapshot
        news = asyncio.create_task(b.events(start.epoch, start.following, wait_s=20.0))
        assert (await copied(b, lab.move("a"))).ok
        found = await news
        ((number, batch),) = found.batches
        assert (found.epoch, found.snapshot, number) == (start.epoch, False, 1)
        assert batch.events == (BlockStored(CHAIN, None, (), 16, "CPU", "t"),)
        assert abs(batch.ts - start.batches[0][1].ts) < 60.0
        await b.drop("t", CHAIN[2:])
        (removed,) = (await b.events(found.epoch, found.following)).batches
        assert removed[1].events == (BlockRemoved(CHAIN[2:], "CPU", "t", never_used=1),)
        address = lab.agents["b"].address
        await lab.agents["b"].aclose()
        await lab.start("b", address=address)
        after = await b.events(found.epoch, found.following + 1)
        assert after.epoch != found.epoch
        assert after.snapshot
        assert after.batches[0][1].events == (AllBlocksCleared(),)

    talk(steps)


def test_who_asks_for_news_of_which_there_is_none_is_told_so() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        start = await b.events(-1, 0)
        none = await b.events(start.epoch, start.following, wait_s=0.05)
        assert (none.batches, none.following, none.snapshot) == ((), start.following, False)

    talk(steps)


def test_a_prefix_that_was_brought_can_be_brought_on() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        assert (await copied(b, lab.move("a"))).ok
        d = await lab.start("d")
        assert (await copied(d, lab.move("b"))).ok
        assert lab.blocks("d") == lab.blocks("a")
        assert (await b.list()).tenants[0].used == 3

    talk(steps)


def test_a_move_from_the_target_itself_is_no_way_to_get_it() -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        assert failed(await copied(b, lab.move("b")), LeaseLost)
        result = await copied(b, lab.move("b", "a"))
        assert (result.ok, result.retries) == (True, 1)

    talk(steps)


@pytest.mark.parametrize("limit", ["MOST_LEASES", "MOST_COPIES"])
def test_what_an_agent_does_at_once_is_bounded(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, limit, 1)

    async def steps(lab: Lab, b: AgentClient) -> None:
        if limit == "MOST_COPIES":
            with pytest.raises(Busy, match="1 are the most"):
                await b.copy([lab.move("a"), lab.move("c", chain=CHAIN[:1])], {}, now_s=0.0)
            lab.check_nothing_came()
            return
        holder = AgentHolder(lab.agents["a"].address, TOKEN)
        offer = await holder.lease("t", CHAIN, 20.0)
        with pytest.raises(Busy, match="1 leases"):
            await holder.lease("t", CHAIN, 20.0)
        await holder.release(offer.lease)
        await holder.release((await holder.lease("t", CHAIN, 20.0)).lease)
        holder.close()

    talk(steps)


def test_holders_that_an_agent_has_asked_are_forgotten_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agents, "MOST_HOLDERS", 1)

    async def steps(lab: Lab, b: AgentClient) -> None:
        assert (await copied(b, lab.move("a", chain=CHAIN[:1]))).ok
        assert (await copied(b, lab.move("c", chain=CHAIN[:2]))).ok
        assert (await copied(b, lab.move("a"))).ok
        assert list(lab.agents["b"]._holders) == [lab.address("a")]

    talk(steps)


def test_an_agent_is_not_open_to_others_without_a_token() -> None:
    async def run() -> None:
        lab = Lab()
        with pytest.raises(ValueError, match="a token is needed"):
            await lab.start("a", address=Address("192.0.2.1", 0), token=b"")
        client = await lab.start("b", token=b"")
        assert (await client.list()).slots == {"free": 8}
        await lab.aclose()

    asyncio.run(run())


def test_an_agent_that_ends_calls_copies_off_and_leaves_no_socket(tmp_path: Path) -> None:
    async def steps(lab: Lab, b: AgentClient) -> None:
        lab.wire = stalled
        d = await lab.start("d", address=Address(path=str(tmp_path / "d")))
        copying = asyncio.create_task(copied(d, lab.move("a")))
        pool = lab.agents["d"].pool
        await until(lambda: pool.states(0.0)[State.FILLING] == 3)
        await lab.agents["d"].aclose()
        await lab.agents["d"].aclose()
        with pytest.raises(PeerGone):
            await copying
        assert pool.states(0.0) == {State.FREE: 8}
        assert not (tmp_path / "d").exists()

    talk(steps)


hashes = st.sampled_from([*CHAIN, 5, 0, -1])
some_chains = st.lists(hashes, min_size=1, max_size=9).map(tuple)
numbers = st.integers(-1, 9) | st.sampled_from([2**63, -(2**63), 2**64 - 1])
slots = st.lists(numbers, max_size=3).map(tuple)
leases = st.builds(Lease, numbers, numbers, slots, slots, st.floats())
whose = st.sampled_from(["t", "u", ""])
orders = st.builds(
    Order,
    whose,
    some_chains,
    st.lists(st.sampled_from(["127.0.0.1:1", "unix:/none", "b", ""]), max_size=2).map(tuple),
    st.integers(0, 2**64 - 1),
    st.sampled_from([-inf, 0.0, 0.1]),
    st.sampled_from([0.0, 1.0, inf]),
    st.text(max_size=5),
)
requests = st.one_of(
    st.builds(AskLease, whose, some_chains, st.sampled_from([1e-9, 1.0, 60.0, 3600.0])),
    st.builds(AskVerify, leases),
    st.builds(AskRelease, leases),
    st.builds(AskCopy, st.lists(orders, max_size=3).map(tuple)),
    st.builds(AskCancel, whose, hashes),
    st.just(AskList()),
    st.builds(AskEvents, numbers, numbers, st.just(0.0)),
    st.builds(AskDrop, whose, some_chains),
    st.builds(AskFill, whose, some_chains, numbers),
)


@settings(max_examples=60, deadline=None)
@given(asked=st.lists(requests, max_size=6))
def test_whatever_is_asked_is_answered_or_refused_and_nothing_leaks(asked: list[Request]) -> None:
    async def run() -> None:
        lab = Lab()
        try:
            a = await lab.start("a")
            await a.fill("t", CHAIN, seed=1)
            channel = Channel(lab.agents["a"].address, TOKEN, patience_s=0.0)
            granted = []
            for request in asked:
                (answer,) = await asyncio.gather(
                    channel.ask(request, object, 20.0), return_exceptions=True
                )
                assert not isinstance(answer, PeerGone), "a bug ended the connection"
                if isinstance(request, AskLease) and not isinstance(answer, ReplicationError):
                    granted.append(msgspec.convert(answer, Offer).lease)
            for lease in granted:
                await channel.ask(AskRelease(lease), object, 20.0)
            channel.close()
            lab.check_nothing_is_left()
        finally:
            await lab.aclose()

    asyncio.run(run())
