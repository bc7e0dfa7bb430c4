"""Agents in processes of their own that die, stop, start anew or are cut off, step by step."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic

import pytest

from btb.agent_process import AgentProcess, agent_process
from btb.traces.hashing import chained, root
from replication.agent import Agent, new_epoch
from replication.control import address as addresses
from replication.control import remote
from replication.control.address import Address
from replication.control.messages import Listing
from replication.control.remote import AgentClient, AgentHolder
from replication.errors import (
    LeaseLost,
    PeerGone,
    TransferTimeout,
    TransportError,
)
from replication.layout import Layout
from replication.peer import Offer
from replication.plan import Move
from replication.result import Result
from replication.store import State
from replication.transports.base import Piece, Region
from replication.transports.choice import AutoTransport

BTB = str(Path(sys.executable).with_name("btb"))
CUT = ("--slots", "8", "--layers", "2", "--layer-bytes", "1000")
LAYOUT = Layout(slots=8, layer_bytes=((1000, 1000),))
CHAIN = (11, 12, 13)
LEASE_S = 20.0
"""Longer than a copy takes on any machine. What ends with a lease is looked at from after it."""
SILENCE_S = 2.0
"""How long the tests wait for an answer, which has to be enough for one to come, too."""
FRAMES = range(1, 11)
"""What a copy says to its source: 2 x 2 to greet, then lease, verify and release with answers."""


class Skipping(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward: a long wait is over at once, on any machine."""

    skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self.skipped_s


def skip(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Skipping)
    loop.skipped_s += seconds


class Cable:
    """Passes frames on to an agent; before the `at`-th something happens, or it gets stuck."""

    def __init__(self, to: str, at: int = 0, happens: Callable[[], None] | None = None) -> None:
        self._to = Address.parse(to)
        self._at = at
        self._happens = happens
        self.seen = 0
        self.stuck = asyncio.Event()
        self._unplugged = False
        self._writers: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def plugged(self) -> AsyncIterator[str]:
        """Give the address of the near end."""
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            self.pull()
            server.close()
            await server.wait_closed()

    def pull(self) -> None:
        """Break all connections, and let no more through."""
        self._unplugged = True
        for writer in self._writers:
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self._unplugged:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self._to.host, self._to.port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.append(far_writer)
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                length = await reader.readexactly(4)
                body = await reader.readexactly(int.from_bytes(length))
                await self._one()
                writer.write(length + body)
                await writer.drain()
        writer.transport.abort()

    async def _one(self) -> None:
        self.seen += 1
        if self.seen == self._at:
            if self._happens is None:
                self.stuck.set()
                await asyncio.Event().wait()
            else:
                self._happens()


class Eventful(AutoTransport):
    """Reads as any other; but before the `at`-th read something happens."""

    at = 0
    happens: Callable[[], None] = staticmethod(lambda: None)
    reads = 0

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        self.reads += 1
        if self.reads == self.at:
            self.happens()
        await super().read(region, pieces, into, deadline_s)


@asynccontextmanager
async def target(
    kind: str = "auto", lease_s: float = LEASE_S
) -> AsyncIterator[tuple[Agent, Eventful]]:
    """Give an agent of this process that has nothing yet; nothing may be left of it in the end."""
    epoch = new_epoch()
    transport = await Eventful.start(b"none", kind=kind, epoch=epoch)
    memories = [transport.allocate(LAYOUT.region_bytes(rank)) for rank in LAYOUT.ranks]
    here = Address("127.0.0.1", 0)
    agent = Agent(here, b"", LAYOUT, memories, transport, epoch=epoch, lease_s=lease_s, trial=True)
    try:
        yield agent, transport
        check_nothing_is_left(agent)
    finally:
        await agent.aclose()


def check_nothing_is_left(agent: Agent) -> None:
    now_s = asyncio.get_running_loop().time()
    assert agent.pool.leases(now_s) == 0
    assert set(agent.pool.states(now_s)) <= {State.FREE, State.VALID}
    assert agent.listing().copies == 0


def move(*holders: str, deadline_s: float = 20.0) -> Move:
    return Move("t", CHAIN, holders, "here", 6000, deadline_s, 1.0, "")


async def copied(agent: Agent | str, *holders: str, deadline_s: float = 20.0) -> Result:
    address = Address.parse(agent) if isinstance(agent, str) else agent.address
    client = AgentClient(address, b"")
    try:
        (result,) = await client.copy([move(*holders, deadline_s=deadline_s)], {}, now_s=0.0)
        return result
    finally:
        client.close()


async def fill(address: str, seed: int = 1) -> None:
    client = AgentClient(Address.parse(address), b"")
    await client.fill("t", CHAIN, seed)
    client.close()


async def listing(address: str) -> Listing:
    client = AgentClient(Address.parse(address), b"")
    try:
        return await client.list()
    finally:
        client.close()


async def digests(address: str) -> tuple[tuple[int | None, ...], ...]:
    """Return what an agent says its blocks are like."""
    holder = AgentHolder(Address.parse(address), b"")
    offer = await holder.lease("t", CHAIN, 5.0)
    await holder.release(offer.lease)
    holder.close()
    return offer.digests


def own_digests(agent: Agent) -> tuple[tuple[int, ...], ...]:
    """Return what an agent of this process has, all of it: it tells others of a sample only."""
    lease = agent.pool.lease("t", CHAIN, inf, 0.0)
    agent.pool.release(lease)
    return tuple(
        tuple(agent.pool.digest(slot, rank) for slot in lease.slots) for rank in LAYOUT.ranks
    )


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20.0):
        while not await happened():
            await asyncio.sleep(0.01)


async def no_lease_is_left(address: str) -> bool:
    there = await listing(address)
    return there.leases == 0 and set(there.slots) <= {"free", "valid"}


@pytest.fixture(scope="module")
def source() -> Iterator[AgentProcess]:
    """An agent that holds CHAIN, and that nobody does anything to."""
    with agent_process(*CUT, "--allow-fill") as agent:
        asyncio.run(fill(agent.address))
        yield agent


@pytest.fixture
def own_source() -> Iterator[AgentProcess]:
    """The same, for one test to kill."""
    with agent_process(*CUT, "--allow-fill") as agent:
        asyncio.run(fill(agent.address))
        yield agent


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for those that say nothing for a shorter time than one would outside a test."""
    monkeypatch.setattr(addresses, "CONNECT_S", SILENCE_S)
    monkeypatch.setattr(remote, "CALL_S", SILENCE_S)


@asynccontextmanager
async def holder() -> AsyncIterator[Agent]:
    """Give an agent of this process that holds CHAIN, and look at what is left when leases end."""
    async with target() as (agent, _):
        await fill(str(agent.address))
        yield agent
        assert agent.pool.leases(asyncio.get_running_loop().time() + LEASE_S) == 0


@pytest.mark.parametrize("at", FRAMES)
def test_a_link_that_is_cut_before_a_frame_leaves_nothing(at: int) -> None:
    """From the ninth frame on the copy is in place: what is lost is only the end of its lease."""

    async def scenario() -> None:
        async with holder() as source, target() as (agent, _):
            cable = Cable(str(source.address), at)
            cable._happens = cable.pull
            async with cable.plugged() as near:
                result = await copied(agent, near)
                assert cable.seen >= at
                if at >= 9:
                    assert result.ok
                    assert own_digests(agent) == own_digests(source)
                else:
                    assert type(result.error) is PeerGone
                    assert agent.pool.states(0.0) == {State.FREE: 8}
                check_nothing_is_left(agent)
                assert (await copied(agent, str(source.address))).ok

    asyncio.run(scenario())


@pytest.mark.parametrize("at", FRAMES)
def test_a_link_that_says_nothing_more_is_given_up(at: int) -> None:
    """No end is told of anything: the copy ends by time, the lease at the source too."""

    async def scenario() -> None:
        async with holder() as source, target() as (agent, _):
            cable = Cable(str(source.address), at)
            async with cable.plugged() as near:
                copying = asyncio.create_task(
                    copied(agent, near, str(source.address), deadline_s=5.0 * remote.CALL_S)
                )
                await cable.stuck.wait()
                skip(remote.CALL_S)
                result = await copying
                assert result.ok
                assert result.retries == (0 if at >= 9 else 1)
                assert own_digests(agent) == own_digests(source)

    with asyncio.Runner(loop_factory=Skipping) as runner:
        runner.run(scenario())


@pytest.mark.parametrize("at", [1, 5, 6, 7, 8])
@pytest.mark.parametrize("kind", ["shm", "tcp"])
def test_a_source_that_is_killed_in_the_middle_leaves_nothing(
    own_source: AgentProcess, kind: str, at: int
) -> None:
    def kill() -> None:
        own_source.process.kill()
        own_source.process.wait()

    async def scenario() -> None:
        cable = Cable(own_source.address, at, kill)
        async with target(kind) as (agent, _), cable.plugged() as near:
            result = await copied(agent, near)
            if at == 8:  # it had said yes to the last question
                assert result.ok
            else:
                assert isinstance(result.error, PeerGone)
                assert agent.pool.states(0.0) == {State.FREE: 8}

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["shm", "tcp"])
def test_a_source_that_is_killed_before_a_read_is_passed_over(
    own_source: AgentProcess, source: AgentProcess, kind: str
) -> None:
    def kill() -> None:
        own_source.process.kill()
        own_source.process.wait()

    async def scenario() -> None:
        async with target(kind) as (agent, transport):
            transport.at, transport.happens = 1, kill
            result = await copied(agent, own_source.address, source.address)
            assert transport.reads == 2
            assert (result.ok, result.retries) == (True, 1)
            assert own_digests(agent) == await digests(source.address)

    asyncio.run(scenario())


@pytest.mark.parametrize("at", [1, 5, 7])
@pytest.mark.usefixtures("impatient")
def test_a_source_that_stops_is_passed_over_and_keeps_no_lease(
    own_source: AgentProcess, source: AgentProcess, at: int
) -> None:
    """The kernel goes on taking what is sent to it, so only time tells."""

    async def scenario() -> None:
        cable = Cable(
            own_source.address, at, lambda: own_source.process.send_signal(signal.SIGSTOP)
        )
        async with target(lease_s=3 * SILENCE_S) as (agent, _), cable.plugged() as near:
            result = await copied(agent, near, source.address)
            assert (result.ok, result.retries) == (True, 1)
            own_source.process.send_signal(signal.SIGCONT)
            await until(lambda: no_lease_is_left(own_source.address))

    asyncio.run(scenario())


@pytest.mark.usefixtures("impatient")
def test_a_source_that_stops_between_two_copies_is_not_waited_for_as_long_as_a_lease(
    own_source: AgentProcess, source: AgentProcess
) -> None:
    async def scenario() -> None:
        async with target() as (agent, _):
            assert (await copied(agent, own_source.address)).ok
            agent.pool.drop("t", CHAIN, asyncio.get_running_loop().time())
            own_source.process.send_signal(signal.SIGSTOP)
            alone = await copied(agent, own_source.address, deadline_s=20.0)
            assert type(alone.error) is TransferTimeout
            assert f"{own_source.address} has not answered" in str(alone.error)
            assert agent.pool.states(0.0) == {State.FREE: 8}
            result = await copied(agent, own_source.address, source.address)
            assert (result.ok, result.retries) == (True, 1)
            own_source.process.send_signal(signal.SIGCONT)
            agent.pool.drop("t", CHAIN, asyncio.get_running_loop().time())
            assert (await copied(agent, own_source.address)).ok

    asyncio.run(scenario())


def test_a_target_that_is_killed_leaves_its_lease_to_end_by_itself() -> None:
    """It dies while it waits for the answer to verify; a new one at its address copies it all."""

    async def scenario() -> None:
        async with target() as (agent, _):
            await fill(str(agent.address))
            now_s = asyncio.get_running_loop().time
            cable = Cable(str(agent.address), at=7)
            async with cable.plugged() as near:
                with agent_process(*CUT, "--lease", str(LEASE_S)) as victim:
                    copying = asyncio.create_task(copied(victim.address, near))
                    await cable.stuck.wait()
                    assert agent.pool.leases(now_s()) == 1
                    assert (await listing(victim.address)).slots == {"filling": 3, "free": 5}
                    victim.process.kill()
                    victim.process.wait()
                    assert agent.pool.leases(now_s()) == 1
                options = (*CUT, "--listen", victim.address)
                cable.pull()
                with agent_process(*options) as again:
                    assert again.epoch != victim.epoch
                    # The controller's channel has found it again, and asked again.
                    assert isinstance((await copying).error, PeerGone)
                    assert (await listing(again.address)).slots == {"free": 8}
                    assert (await copied(again.address, str(agent.address))).ok
                    there = await digests(again.address)
            assert agent.pool.leases(now_s() + LEASE_S) == 0
            assert there == await digests(str(agent.address))

    asyncio.run(scenario())


def test_a_source_that_starts_anew_at_its_address_is_found_again(own_source: AgentProcess) -> None:
    async def scenario() -> None:
        holder = AgentHolder(Address.parse(own_source.address), b"")
        async with target() as (agent, transport):
            offer = await holder.lease("t", CHAIN, 20.0)
            assert (await copied(agent, own_source.address)).ok
            own_source.process.kill()
            own_source.process.wait()
            with pytest.raises(PeerGone):
                await holder.verify(offer.lease)
            with agent_process(*CUT, "--listen", own_source.address, "--allow-fill") as again:
                assert again.epoch == (await listing(again.address)).epoch != own_source.epoch
                agent.pool.drop("t", CHAIN, asyncio.get_running_loop().time())
                assert type((await copied(agent, again.address)).error) is LeaseLost
                await fill(again.address, seed=9)
                await check_old_promises_are_refused(holder, offer, transport)
                assert (await copied(agent, again.address)).ok
                assert await digests(str(agent.address)) == await digests(again.address)
                assert await digests(again.address) != offer.digests
        holder.close()

    asyncio.run(scenario())


async def check_old_promises_are_refused(
    holder: AgentHolder, offer: Offer, transport: AutoTransport
) -> None:
    with pytest.raises(LeaseLost, match="epoch"):
        await holder.verify(offer.lease)
    into = memoryview(bytearray(100))
    with pytest.raises(TransportError):
        await transport.read(offer.regions[0], [Piece(0, 0, 100)], into, 5.0)
    assert not any(into)
    await holder.release(offer.lease)


def test_two_controllers_in_two_processes_bring_one_copy(source: AgentProcess) -> None:
    with agent_process(*CUT) as sink:
        command = [BTB, "agent", "copy", sink.address, "--tenant", "t", "--prefix", "13"]
        both = [
            subprocess.Popen(
                [*command, "--source", source.address, "--json", "-"], stdout=subprocess.PIPE
            )
            for _ in range(2)
        ]
        said = [one.communicate()[0].decode() for one in both]
        assert [one.returncode for one in both] == [0, 0]
        moved = sorted(int(text.split('"moved_bytes": ')[1].split(",")[0]) for text in said)
        assert moved == [0, 6000]
        assert asyncio.run(digests(sink.address)) == asyncio.run(digests(source.address))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_agent_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    where = tmp_path / "agent"
    with agent_process(*CUT, "--listen", f"unix:{where}") as agent:
        assert asyncio.run(listing(agent.address)).slots == {"free": 8}
        agent.process.send_signal(number)
        assert agent.process.wait(timeout=20) == 0
        assert not where.exists()


def test_a_socket_that_a_killed_agent_left_is_taken_over(tmp_path: Path) -> None:
    where = f"unix:{tmp_path / 'agent'}"
    with agent_process(*CUT, "--listen", where) as agent:
        agent.process.kill()
        agent.process.wait()
        with agent_process(*CUT, "--listen", where) as again:
            assert asyncio.run(listing(where)).epoch == again.epoch


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def two_hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a cable between 10.78.0.1 and 10.78.0.2, 200 Mbit/s each way."""
    names = (f"btb-one-{os.getpid()}", f"btb-two-{os.getpid()}")
    if os.geteuid() or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need root, ip and tc")
    try:
        for name in names:
            ip("netns", "add", name)
        ip(
            "-n",
            names[0],
            "link",
            "add",
            "cable",
            "type",
            "veth",
            "peer",
            "cable",
            "netns",
            names[1],
        )
        for number, name in enumerate(names, start=1):
            ip("-n", name, "address", "add", f"10.78.0.{number}/24", "dev", "cable")
            ip("-n", name, "link", "set", "cable", "up")
            ip("-n", name, "link", "set", "lo", "up")
            rate = ("tbf", "rate", "200mbit", "burst", "256kb", "latency", "50ms")
            tc = ["tc", "-n", name, "qdisc", "add", "dev", "cable", "root", *rate]
            subprocess.run(tc, check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        clean_up(names)
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    yield names
    clean_up(names)


def clean_up(names: Sequence[str]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_a_cable_that_is_pulled_between_two_hosts_leaves_nothing(
    two_hosts: tuple[str, str], tmp_path: Path
) -> None:
    """48 MB take 2 s over the cable, so it is pulled while they are under way."""
    token_file = tmp_path / "token"
    token_file.write_text("a-token-of-24-characters")
    token = token_file.read_bytes()
    cut = ("--slots", "8", "--layers", "4", "--layer-bytes", "2000000", "--lease", "5")
    common = (*cut, "--transport", "tcp", "--token-file", str(token_file))
    under = [("ip", "netns", "exec", name) for name in two_hosts]
    near = Address(path=str(tmp_path / "near"))
    chain = chained(range(6), root(0, tenant="t", scope="fill 0"))

    async def scenario(far: str) -> None:
        client = AgentClient(near, token)
        asked = Move("t", chain, (far,), "near", 48_000_000, 4.0, 1.0, "")
        copying = asyncio.create_task(client.copy([asked], {}, now_s=0.0))

        async def reads() -> bool:
            return (await client.list()).slots.get("filling", 0) == 6

        await until(reads)
        await asyncio.sleep(0.3)
        ip("-n", two_hosts[0], "link", "set", "cable", "down")
        started_s = monotonic()
        (result,) = await copying
        assert isinstance(result.error, TransferTimeout | PeerGone)
        assert monotonic() - started_s < 6.0
        assert result.wasted_bytes > 0
        assert (await client.list()).slots == {"free": 8}
        (cut_off,) = await client.copy([asked], {}, now_s=0.0)
        assert isinstance(cut_off.error, TransferTimeout | PeerGone)
        ip("-n", two_hosts[0], "link", "set", "cable", "up")

        async def comes_again() -> bool:
            (result,) = await client.copy([replace(asked, deadline_s=30.0)], {}, now_s=0.0)
            return result.ok

        await until(comes_again)
        assert (await client.list()).slots == {"free": 2, "valid": 6}
        client.close()

    with (
        agent_process(
            *common, "--listen", "10.78.0.1:8018", "--allow-fill", prefix=under[0]
        ) as far,
        agent_process(*common, "--listen", str(near), prefix=under[1]),
    ):
        options = ["--blocks", "6", "--tenant", "t", "--token-file", str(token_file)]
        command = [*under[0], BTB, "agent", "fill", far.address, *options]
        subprocess.run(command, check=True, capture_output=True)
        asyncio.run(scenario(far.address))
