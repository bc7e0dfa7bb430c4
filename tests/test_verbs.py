"""Real verbs: skipped where there is no device, unless BTB_REQUIRE_RDMA=1 demands one.

`btb lab rdma -- .venv/bin/python -m pytest tests/test_verbs.py` has two of them, and a cable.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from errno import EACCES
from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from replication.errors import PeerGone, Refused, TransferTimeout, TransportError
from replication.transports.base import Piece, Region
from replication.transports.verbs import VerbsTransport
from replication.transports.verbs_device import VerbsDevice, device_names
from replication.transports.verbs_settings import VerbsSettings

TOKEN = b"the same at both ends"
MIB = 1 << 20
SHORT = VerbsSettings(chunk_bytes=64 << 10, outstanding=8, ack_timeout=10, retries=3)
"""Small queues that fill up, and a peer that counts as gone after milliseconds."""

PATIENT = VerbsSettings(chunk_bytes=64 << 10, outstanding=8, ack_timeout=20)
"""A peer counts as gone after half a minute: deadlines come first."""

Devices = tuple[str, str]


def found() -> list[str] | str:
    """Return the RDMA devices here, or why there are none."""
    try:
        return device_names() or "there is no RDMA device"
    except TransportError as error:
        return str(error)


@pytest.fixture(scope="module")
def devices() -> Devices:
    names = found()
    if isinstance(names, str):
        if os.environ.get("BTB_REQUIRE_RDMA") == "1":
            pytest.fail(f"BTB_REQUIRE_RDMA=1, but {names}")
        pytest.skip(f"{names}; `btb lab rdma` has one")
    return names[0], names[-1]


@pytest.fixture
def cable(devices: Devices) -> Iterator[None]:
    """Promise a cable that may be cut; it is whole again afterwards."""
    if devices != ("rxe0", "rxe1") or not Path("/sys/class/net/ve0").exists():
        pytest.skip("only the lab's cable may be cut")
    yield
    mend()


@asynccontextmanager
async def ends(
    devices: Devices, settings: VerbsSettings = SHORT
) -> AsyncIterator[tuple[VerbsTransport, VerbsTransport]]:
    """Give a transport to read from, and one that reads."""
    source = await VerbsTransport.start(TOKEN, device=devices[0], settings=settings)
    target = await VerbsTransport.start(TOKEN, device=devices[1], settings=settings)
    try:
        yield source, target
    finally:
        await target.aclose()
        await source.aclose()


def content(size_bytes: int, seed: int = 0) -> memoryview:
    return memoryview(bytearray(Random(seed).randbytes(size_bytes)))


def blank(size_bytes: int) -> memoryview:
    return memoryview(bytearray(size_bytes))


def shell(command: str) -> None:
    subprocess.run(command.split(), check=True)


def mend() -> None:
    """Make the cable whole; taking it down has flushed what belonged to the interface."""
    subprocess.run(["tc", "qdisc", "del", "dev", "ve0", "root"], capture_output=True, check=False)
    shell("ip link set ve0 up")
    shell("ip route replace 10.77.0.2 dev ve0 src 10.77.0.1 table 101")
    shell("ip neighbour replace 10.77.0.2 lladdr 02:00:00:00:00:02 dev ve0 nud permanent")


def test_without_pyverbs_the_reason_is_named() -> None:
    with suppress(ImportError):
        import_module("pyverbs.device")
        pytest.skip("there is a pyverbs here")
    with pytest.raises(TransportError, match="pyverbs can't be imported"):
        asyncio.run(VerbsTransport.start(TOKEN))


@pytest.mark.parametrize("size_bytes", [1, 4097, 8 * MIB])
def test_bytes_arrive_as_they_were(devices: Devices, size_bytes: int) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            held, got = content(size_bytes), blank(size_bytes)
            await target.read(source.register(held), [Piece(0, 0, size_bytes)], got, 60.0)
            assert got == held

    asyncio.run(scenario())


def test_pieces_go_where_they_are_to_and_nowhere_else(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            held, pool = content(MIB), blank(2 * MIB)
            region = source.register(held)
            target.register(pool)
            blocks = list(range(0, MIB, 8192))
            places = [2 * offset for offset in blocks]
            Random(1).shuffle(places)
            pieces = [Piece(a, b, 5000) for a, b in zip(blocks, places, strict=True)]
            expected = bytearray(2 * MIB)
            for piece in pieces:
                begin, to = piece.source_offset, piece.target_offset
                expected[to : to + 5000] = held[begin : begin + 5000]
            await target.read(region, pieces, pool, 60.0)
            assert pool == expected

    asyncio.run(scenario())


def test_a_part_of_registered_memory_is_read_into(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            held, pool = content(MIB), blank(2 * MIB)
            target.register(pool)
            region = source.register(held)
            await target.read(region, [Piece(0, 8, 1000)], pool[4096:8192], 60.0)
            assert pool[4104:5104] == held[:1000]
            assert not any(pool[:4104])
            assert not any(pool[5104:])

    asyncio.run(scenario())


def test_memory_that_must_not_change_is_read_from_and_never_into(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            fixed, got = memoryview(b"0123456789"), blank(10)
            await target.read(source.register(fixed), [Piece(0, 0, 10)], got, 60.0)
            assert got == fixed
            with pytest.raises(ValueError, match="writable"):
                await source.read(target.register(got), [Piece(0, 0, 10)], fixed, 60.0)

    asyncio.run(scenario())


def test_memory_is_registered_once(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, _):
            held = content(MIB)
            assert source.register(held) == source.register(held)

    asyncio.run(scenario())


def test_reads_at_once_from_one_peer_are_all_whole(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            held = [content(MIB, seed) for seed in range(4)]
            got = [blank(MIB) for _ in held]
            regions = [source.register(memory) for memory in held]
            whole = [Piece(0, 0, MIB)]
            await asyncio.gather(
                *(target.read(a, whole, b, 60.0) for a, b in zip(regions, got, strict=True))
            )
            assert got == held

    asyncio.run(scenario())


@pytest.mark.parametrize("forged", ["key", "size"])
def test_the_device_refuses_what_was_not_offered_and_the_next_read_works(
    devices: Devices, forged: str
) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            held, got = content(MIB), blank(2 * MIB)
            region = source.register(held)
            address, key = region.key.split(":")
            wrong = {
                "key": replace(region, key=f"{address}:{int(key, 16) ^ 0xFF00:x}"),
                "size": replace(region, size_bytes=2 * MIB),
            }[forged]
            offset = 0 if forged == "key" else MIB - 100
            with pytest.raises(TransportError, match=r"(?i)remote access error") as caught:
                await target.read(wrong, [Piece(offset, 0, 200)], got, 60.0)
            assert caught.value.errno == EACCES
            assert not any(got)
            await target.read(region, [Piece(0, 0, MIB)], got, 60.0)
            assert got[:MIB] == held

    asyncio.run(scenario())


def test_an_earlier_epoch_is_refused(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            region = replace(source.register(content(100)), epoch=0)
            with pytest.raises(TransportError, match="started anew"):
                await target.read(region, [Piece(0, 0, 100)], blank(100), 60.0)

    asyncio.run(scenario())


def test_another_token_is_refused(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, _):
            stranger = await VerbsTransport.start(b"another", device=devices[1])
            region = source.register(content(100))
            with pytest.raises(Refused):
                await stranger.read(region, [Piece(0, 0, 100)], blank(100), 60.0)
            await stranger.aclose()

    asyncio.run(scenario())


def test_a_source_that_closed_is_gone(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            region = source.register(content(100))
            await target.read(region, [Piece(0, 0, 100)], blank(100), 60.0)
            await source.aclose()
            with pytest.raises(PeerGone):
                await target.read(region, [Piece(0, 0, 100)], blank(100), 60.0)

    asyncio.run(scenario())


def test_a_cancelled_read_writes_nothing_afterwards(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            held, pool = content(4 * MIB), blank(4 * MIB)
            region = source.register(held)
            target.register(pool)
            whole = [Piece(0, 0, 4 * MIB)]
            random, stopped = Random(2), 0
            for _ in range(20):
                reading = asyncio.create_task(target.read(region, whole, pool, 60.0))
                for _ in range(random.randrange(2, 30)):
                    await asyncio.sleep(0)
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading
                stopped += reading.cancelled()
                pool[:] = bytes(4 * MIB)
                await target.read(region, [Piece(0, 0, 9)], blank(9), 60.0)
                assert not any(pool[:: 1 << 12])
            assert stopped
            await target.read(region, whole, pool, 60.0)
            assert pool == held

    asyncio.run(scenario())


def test_nothing_is_left_open(devices: Devices) -> None:
    async def scenario() -> None:
        async with ends(devices) as (source, target):
            region = source.register(content(MIB))
            await target.read(region, [Piece(0, 0, MIB)], blank(MIB), 60.0)
            wrong = replace(region, size_bytes=2 * MIB)
            with pytest.raises(TransportError):
                await target.read(wrong, [Piece(MIB, 0, MIB)], blank(MIB), 60.0)
        await target.aclose()
        await source.aclose()
        with pytest.raises(PeerGone):
            source.register(content(1))

    asyncio.run(scenario())
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(scenario())
    assert len(os.listdir("/proc/self/fd")) == before


PEER = """
import asyncio
from replication.transports.verbs import VerbsTransport
async def main():
    transport = await VerbsTransport.start({token!r}, device={device!r})
    region = transport.register(memoryview(bytearray({size_bytes})))
    print(region.peer, region.epoch, region.key, region.size_bytes, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def test_a_source_that_is_killed_is_gone(devices: Devices) -> None:
    size_bytes = 16 * MIB
    script = PEER.format(token=TOKEN, device=devices[0], size_bytes=size_bytes)

    async def scenario(peer: "subprocess.Popen[str]") -> None:
        assert peer.stdout is not None
        name, epoch, key, size = peer.stdout.readline().split()
        region = Region(name, int(epoch), key, int(size))
        target = await VerbsTransport.start(TOKEN, device=devices[1], settings=PATIENT)
        pool = blank(size_bytes)
        target.register(pool)
        await target.read(region, [Piece(0, 0, MIB)], pool, 60.0)
        # The device would go on trying for half a minute; that the peer is gone is known before.
        reading = asyncio.create_task(target.read(region, [Piece(0, 0, size_bytes)], pool, 15.0))
        for _ in range(5):
            await asyncio.sleep(0)
        peer.kill()
        with pytest.raises(PeerGone):
            await reading
        await target.aclose()

    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as peer:
        try:
            asyncio.run(scenario(peer))
        finally:
            peer.kill()


@pytest.mark.parametrize(
    ("settings", "deadline_s", "error"), [(SHORT, 60.0, PeerGone), (PATIENT, 0.5, TransferTimeout)]
)
@pytest.mark.parametrize(
    "cut", ["tc qdisc add dev ve0 root netem loss 100%", "ip link set ve0 down"]
)
def test_a_cut_cable_is_noticed_and_a_mended_one_used(
    devices: Devices,
    cable: None,
    cut: str,
    settings: VerbsSettings,
    deadline_s: float,
    error: type[TransportError],
) -> None:
    async def scenario() -> None:
        async with ends(devices, settings) as (source, target):
            held, got = content(MIB), blank(MIB)
            region = source.register(held)
            whole = [Piece(0, 0, MIB)]
            await target.read(region, whole, got, 60.0)
            shell(cut)
            with pytest.raises(error):
                await target.read(region, whole, got, deadline_s)
            mend()
            got[:] = bytes(MIB)
            await target.read(region, whole, got, 60.0)
            assert got == held

    asyncio.run(scenario())


def test_packets_that_are_lost_are_sent_again(devices: Devices, cable: None) -> None:
    async def scenario() -> None:
        async with ends(devices, replace(SHORT, retries=7)) as (source, target):
            held, got = content(4 * MIB), blank(4 * MIB)
            shell("tc qdisc add dev ve0 root netem loss 1%")
            await target.read(source.register(held), [Piece(0, 0, 4 * MIB)], got, 100.0)
            assert got == held

    asyncio.run(scenario())


def test_every_error_of_pyverbs_becomes_one_of_ours(devices: Devices) -> None:
    errors = import_module("pyverbs.pyverbs_error")
    theirs = [one for one in vars(errors).values() if isinstance(one, type)]
    raised = [one for one in theirs if issubclass(one, Exception)]
    assert {one.__name__ for one in raised} >= {"PyverbsRDMAError", "PyverbsUserError"}
    assert all(issubclass(one, errors.PyverbsError) for one in raised)


def test_a_device_that_is_not_there_is_named(devices: Devices) -> None:
    with pytest.raises(TransportError, match="can't open RDMA device mlx9_9"):
        asyncio.run(VerbsTransport.start(TOKEN, device="mlx9_9"))


def test_memory_that_can_not_be_pinned_is_refused_with_the_kernels_reason(
    devices: Devices,
) -> None:
    device = VerbsDevice(devices[0], SHORT)
    with pytest.raises(TransportError, match="can't register 4096 bytes") as caught:
        device.register(4096, 4096, readable=True, writable=True)
    assert caught.value.errno
    device.close()
    device.close()
