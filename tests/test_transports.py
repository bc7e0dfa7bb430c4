"""One suite for all transports: what the executor relies on, whatever moves the bytes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from errno import EACCES
from math import inf
from random import Random
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replication.errors import PeerGone, TransferTimeout, TransportError
from replication.transports.base import Piece, Region, Transport
from replication.transports.choice import AutoTransport
from replication.transports.memory import (
    MemoryTransport,
    Wire,
    corrupted,
    cut_short,
    delayed,
    gone,
    meanwhile,
    nth,
    stalled,
)
from replication.transports.shm import ShmTransport
from replication.transports.tcp import TcpTransport
from replication.transports.verbs import VerbsTransport
from replication.transports.verbs_device import device_names

MIB = 1 << 20
LARGE = [Piece(at, at, MIB) for at in range(0, 64 * MIB, MIB)]
"""More than sockets hold on the way, in pieces, so that something can happen in the middle."""


class Lab(Protocol):
    """Makes the transports of one test, which can reach each other."""

    async def start(self, name: str, epoch: int = 1) -> Transport: ...

    def allocate(self, transport: Transport, size_bytes: int) -> memoryview: ...


class MemoryLab:
    def __init__(self) -> None:
        self._network: dict[str, MemoryTransport] = {}

    async def start(self, name: str, epoch: int = 1) -> Transport:
        return MemoryTransport(name, self._network, epoch)

    def allocate(self, transport: Transport, size_bytes: int) -> memoryview:
        return memoryview(bytearray(size_bytes))


class TcpLab:
    def __init__(self) -> None:
        self._ports: dict[str, int] = {}

    async def start(self, name: str, epoch: int = 1) -> Transport:
        port = self._ports.get(name, 0)
        transport = await TcpTransport.start(b"a token", port=port, epoch=epoch)
        region = transport.register(memoryview(bytearray(1)))
        self._ports[name] = int(region.peer.rpartition(":")[2])
        return transport

    def allocate(self, transport: Transport, size_bytes: int) -> memoryview:
        return memoryview(bytearray(size_bytes))


class ShmLab:
    async def start(self, name: str, epoch: int = 1) -> Transport:
        return ShmTransport(epoch)

    def allocate(self, transport: Transport, size_bytes: int) -> memoryview:
        assert isinstance(transport, ShmTransport)
        return transport.allocate(size_bytes)


class AutoLab:
    """Chooses among what there is; on one host that is shared memory."""

    async def start(self, name: str, epoch: int = 1) -> Transport:
        return await AutoTransport.start(b"a token", epoch=epoch)

    def allocate(self, transport: Transport, size_bytes: int) -> memoryview:
        assert isinstance(transport, AutoTransport)
        return transport.allocate(size_bytes)


class VerbsLab:
    """Needs an RDMA device: `btb lab rdma` has two."""

    def __init__(self) -> None:
        self._ports: dict[str, int] = {}

    async def start(self, name: str, epoch: int = 1) -> Transport:
        names = device_names()
        device = names[0] if name == "owner" else names[-1]
        port = self._ports.get(name, 0)
        transport = await VerbsTransport.start(b"a token", device=device, port=port, epoch=epoch)
        region = transport.register(memoryview(bytearray(1)))
        self._ports[name] = int(region.peer.rpartition(":")[2])
        return transport

    def allocate(self, transport: Transport, size_bytes: int) -> memoryview:
        return memoryview(bytearray(size_bytes))


def has_rdma() -> bool:
    try:
        return bool(device_names())
    except TransportError:
        return False


LABS: dict[str, type[Lab]] = {
    "memory": MemoryLab,
    "tcp": TcpLab,
    "shm": ShmLab,
    "auto": AutoLab,
}
if has_rdma():
    LABS["verbs"] = VerbsLab
every_transport = pytest.mark.parametrize("lab_type", LABS.values(), ids=LABS)


class Ends:
    """A peer with memory full of random bytes, and a reader."""

    def __init__(self, lab: Lab, owner: Transport, reader: Transport, size_bytes: int) -> None:
        self.lab = lab
        self.owner = owner
        self.reader = reader
        self.memory = lab.allocate(owner, size_bytes)
        self.memory[:] = b"\1" * size_bytes if size_bytes > MIB else Random(1).randbytes(size_bytes)
        self.region = owner.register(self.memory)
        self.into = memoryview(bytearray(size_bytes))

    async def read(
        self, pieces: Sequence[Piece], region: Region | None = None, deadline_s: float = 60.0
    ) -> None:
        await self.reader.read(region or self.region, pieces, self.into, deadline_s)

    async def start_large_read(self) -> asyncio.Task[None]:
        """Return a read of which something has arrived, and not all."""
        reading = asyncio.create_task(self.read(LARGE))
        while not any(self.into[piece.target_offset] for piece in LARGE):
            assert not reading.done()
            await asyncio.sleep(0)
        return reading

    async def check_it_still_works(self) -> None:
        await self.read([Piece(1, 0, 3)])
        assert self.into[:3] == self.memory[1:4]


@asynccontextmanager
async def ends(lab_type: type[Lab], size_bytes: int = 1000) -> AsyncIterator[Ends]:
    """Give both ends, and close both twice."""
    lab = lab_type()
    owner, reader = await lab.start("owner"), await lab.start("reader")
    try:
        yield Ends(lab, owner, reader, size_bytes)
    finally:
        for transport in (reader, owner, reader, owner):
            await transport.aclose()


def other_key(region: Region) -> Region:
    last = "e" if region.key[-1] == "f" else "f"
    return replace(region, key=region.key[:-1] + last)


stretches = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 100)), min_size=1, max_size=8)


@every_transport
@given(wanted=stretches)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pieces_arrive_in_their_places_and_nothing_else_changes(
    lab_type: type[Lab], wanted: list[tuple[int, int]]
) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            pieces, expected, end = [], bytearray(1000), 7
            for offset, size_bytes in wanted:
                pieces.append(Piece(offset, end, size_bytes))
                expected[end : end + size_bytes] = both.memory[offset : offset + size_bytes]
                end += size_bytes + 3
            await both.read(pieces)
            assert both.into == expected

    asyncio.run(scenario())


@every_transport
def test_a_large_read_is_exact(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type, size_bytes=9 * MIB + 5) as both:
            both.memory[:] = Random(2).randbytes(9 * MIB + 5)
            await both.read([Piece(0, 0, 9 * MIB + 5)], deadline_s=inf)
            assert both.into == both.memory

    asyncio.run(scenario())


@every_transport
def test_more_pieces_than_fit_into_one_request_are_exact(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type, size_bytes=50_000) as both:
            await both.read([Piece(49_999 - at, at, 1) for at in range(50_000)])
            assert bytes(both.into) == bytes(both.memory)[::-1]

    asyncio.run(scenario())


@every_transport
@pytest.mark.parametrize("back", [False, True])
def test_pieces_at_even_steps_and_odd_ones_among_them_are_exact(
    lab_type: type[Lab], back: bool
) -> None:
    """10 bytes at every 100th go to every 70th; then one that is longer, and two at other steps."""
    even = [Piece(100 * at, 70 * at, 10) for at in range(7)]
    odd = [Piece(700, 500, 20), Piece(730, 530, 20), Piece(990, 560, 10)]
    wanted = [*(reversed(even) if back else even), *odd]

    async def scenario() -> None:
        async with ends(lab_type) as both:
            expected = bytearray(1000)
            for piece in wanted:
                start, end, size_bytes = piece.source_offset, piece.target_offset, piece.size_bytes
                expected[end : end + size_bytes] = both.memory[start : start + size_bytes]
            await both.read(wanted)
            assert both.into == expected

    asyncio.run(scenario())


@every_transport
def test_reading_nothing_is_done_at_once(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            await both.read([])
            assert not any(both.into)

    asyncio.run(scenario())


@every_transport
def test_what_is_read_is_what_is_there_now(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            await both.read([Piece(0, 0, 1000)])
            both.memory[:] = bytes(1000)
            await both.read([Piece(0, 0, 1000)])
            assert not any(both.into)

    asyncio.run(scenario())


@every_transport
def test_many_reads_at_once_both_ways_do_not_mix(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type, size_bytes=MIB) as both:
            back = both.lab.allocate(both.reader, MIB)
            back[:] = Random(3).randbytes(MIB)
            region, into = both.reader.register(back), memoryview(bytearray(MIB))
            step = MIB // 16
            reads = [both.read([Piece(at, at, step)]) for at in range(0, MIB, step)]
            reads += [
                both.owner.read(region, [Piece(at, at, step)], into, 60.0)
                for at in range(0, MIB, step)
            ]
            await asyncio.gather(*reads)
            assert both.into == both.memory
            assert into == back

    asyncio.run(scenario())


@every_transport
def test_two_regions_of_one_peer_are_told_apart(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            second = both.lab.allocate(both.owner, 10)
            second[:] = b"0123456789"
            await both.read([Piece(2, 0, 3)], both.owner.register(second))
            assert bytes(both.into[:3]) == b"234"
            await both.check_it_still_works()

    asyncio.run(scenario())


@every_transport
@pytest.mark.parametrize("wrong", ["key", "epoch", "end", "start"])
def test_what_a_peer_does_not_offer_is_refused(lab_type: type[Lab], wrong: str) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            region, piece = both.region, Piece(0, 0, 10)
            if wrong == "key":
                region = other_key(region)
            elif wrong == "epoch":
                region = replace(region, epoch=2)
            elif wrong == "end":
                piece = Piece(991, 0, 10)
            else:
                piece = Piece(1 << 40, 0, 10)
            with pytest.raises(TransportError) as refused:
                await both.read([piece], region)
            assert refused.value.errno == EACCES
            await both.check_it_still_works()

    asyncio.run(scenario())


@every_transport
def test_a_region_that_claims_to_be_larger_than_it_is_gives_no_more(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            with pytest.raises(TransportError):
                await both.read([Piece(1000, 0, 10)], replace(both.region, size_bytes=5000))
            await both.check_it_still_works()

    asyncio.run(scenario())


@every_transport
@pytest.mark.parametrize("key", ["", "x" * 100, "1:2:../../etc/passwd"])
def test_a_key_of_another_kind_is_refused(lab_type: type[Lab], key: str) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            with pytest.raises(TransportError):
                await both.read([Piece(0, 0, 10)], replace(both.region, key=key))
            await both.check_it_still_works()

    asyncio.run(scenario())


@every_transport
@pytest.mark.parametrize(
    "piece", [Piece(0, 991, 10), Piece(0, -1, 1), Piece(-1, 0, 1), Piece(0, 0, 0)]
)
def test_a_piece_that_has_no_place_is_a_mistake_of_ours(lab_type: type[Lab], piece: Piece) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            with pytest.raises(ValueError, match="iece"):
                await both.read([Piece(0, 0, 1), piece])
            assert not any(both.into)

    asyncio.run(scenario())


@every_transport
@pytest.mark.parametrize("deadline_s", [0.0, -1.0])
def test_without_time_nothing_is_read(lab_type: type[Lab], deadline_s: float) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            with pytest.raises(TransferTimeout):
                await both.read([Piece(0, 0, 10)], deadline_s=deadline_s)
            assert not any(both.into)
            await both.check_it_still_works()

    asyncio.run(scenario())


@every_transport
def test_after_its_deadline_a_read_writes_no_more(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type, size_bytes=64 * MIB) as both:
            with pytest.raises(TransferTimeout):
                await both.read(LARGE, deadline_s=1e-4)
            await check_nothing_writes(both)

    asyncio.run(scenario())


@every_transport
def test_after_it_was_called_off_a_read_writes_no_more(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type, size_bytes=64 * MIB) as both:
            reading = await both.start_large_read()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await check_nothing_writes(both)

    asyncio.run(scenario())


async def check_nothing_writes(both: Ends) -> None:
    """Give the slots to somebody else, and let others read meanwhile."""
    both.into[:] = b"\5" * len(both.into)
    for _ in range(5):
        other = memoryview(bytearray(100))
        await both.reader.read(both.region, [Piece(7, 0, 100)], other, 60.0)
        assert other == both.memory[7:107]
    assert both.into == b"\5" * len(both.into)


@every_transport
def test_a_peer_that_dies_in_the_middle_ends_the_read(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type, size_bytes=64 * MIB) as both:
            reading = await both.start_large_read()
            await both.owner.aclose()
            with pytest.raises(PeerGone):
                await reading
            with pytest.raises(PeerGone):
                await both.read([Piece(0, 0, 10)])

    asyncio.run(scenario())


@every_transport
def test_closing_ones_own_end_ends_its_reads(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type, size_bytes=64 * MIB) as both:
            reading = await both.start_large_read()
            await both.reader.aclose()
            with pytest.raises(PeerGone):
                await reading
            with pytest.raises(PeerGone):
                await both.read([Piece(0, 0, 10)])

    asyncio.run(scenario())


@every_transport
def test_a_peer_that_starts_anew_refuses_what_it_offered_before(lab_type: type[Lab]) -> None:
    async def scenario() -> None:
        async with ends(lab_type) as both:
            await both.check_it_still_works()
            await both.owner.aclose()
            again = await both.lab.start("owner", epoch=2)
            try:
                memory = both.lab.allocate(again, 1000)
                memory[:] = b"\7" * 1000
                region = again.register(memory)
                with pytest.raises(TransportError):
                    await both.read([Piece(0, 0, 10)])
                await both.read([Piece(0, 0, 10)], region)
                assert bytes(both.into[:10]) == b"\7" * 10
            finally:
                await again.aclose()

    asyncio.run(scenario())


SHM_CHILD = """
import sys
from replication.transports.shm import ShmTransport
transport = ShmTransport(epoch=3)
memory = transport.allocate(1000)
memory[:] = bytes(range(250)) * 4
region = transport.register(memory)
print(json.dumps([region.peer, region.epoch, region.key, region.size_bytes]), flush=True)
sys.stdin.read()
"""
TCP_CHILD = """
import asyncio
from replication.transports.tcp import TcpTransport
from replication.transports.verbs import VerbsTransport
from replication.transports.verbs_device import device_names
async def main():
    transport = await TcpTransport.start(b"a token", epoch=3)
    region = transport.register(memoryview(bytes(range(250)) * 4))
    print(json.dumps([region.peer, region.epoch, region.key, region.size_bytes]), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.parametrize(("lab_type", "child"), [(ShmLab, SHM_CHILD), (TcpLab, TCP_CHILD)])
def test_another_process_is_read_until_it_is_killed(lab_type: type[Lab], child: str) -> None:
    async def scenario(region: Region, process: subprocess.Popen[str]) -> None:
        reader = await lab_type().start("reader")
        try:
            into = memoryview(bytearray(1000))
            await reader.read(region, [Piece(0, 0, 1000)], into, 60.0)
            assert bytes(into) == bytes(range(250)) * 4
            process.kill()
            process.wait()
            with pytest.raises(PeerGone):
                await reader.read(region, [Piece(0, 0, 1000)], into, 60.0)
        finally:
            await reader.aclose()

    with subprocess.Popen(
        [sys.executable, "-c", "import json" + child],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            asyncio.run(scenario(Region(*json.loads(process.stdout.readline())), process))
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("make_wire", "error"),
    [
        (lambda network: meanwhile(lambda: network.pop("owner")), PeerGone),
        (lambda network: gone, PeerGone),
        (lambda network: cut_short, TransportError),
        (lambda network: stalled, TransferTimeout),
        (lambda network: delayed(60.0), TransferTimeout),
    ],
)
def test_the_fakes_faults_end_a_read_of_a_single_piece(
    make_wire: Callable[[dict[str, MemoryTransport]], Wire], error: type[TransportError]
) -> None:
    async def scenario() -> None:
        network: dict[str, MemoryTransport] = {}
        region = MemoryTransport("owner", network).register(memoryview(b"12345"))
        reader = MemoryTransport("reader", network, wire=make_wire(network))
        into = memoryview(bytearray(5))
        with pytest.raises(error):
            await reader.read(region, [Piece(0, 0, 5)], into, 0.05)
        assert not any(into)

    asyncio.run(scenario())


def test_the_fake_can_turn_a_bit_of_one_piece() -> None:
    async def scenario() -> None:
        network: dict[str, MemoryTransport] = {}
        region = MemoryTransport("owner", network).register(memoryview(bytes(9)))
        reader = MemoryTransport("reader", network, wire=nth(2, corrupted))
        into = memoryview(bytearray(9))
        await reader.read(region, [Piece(at, at, 3) for at in (0, 3, 6)], into, 60.0)
        assert list(into) == [0, 0, 0, 1, 0, 0, 0, 0, 0]

    asyncio.run(scenario())
