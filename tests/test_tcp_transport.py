"""What only TCP has: strangers on the port, frames that lie, readers that stop reading."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from replication.errors import PeerGone, Refused, ReplicationError, TransferTimeout
from replication.transports.base import Piece, Region
from replication.transports.tcp import TcpTransport
from replication.transports.tcp_bulk import mark_as_bulk, receive_views, send_views
from replication.transports.tcp_frames import greet, receive_frame, send_frame
from replication.transports.tcp_server import MOST_PIECES, pack_request

TOKEN = b"a token"


@asynccontextmanager
async def serving(size_bytes: int = 1000) -> AsyncIterator[Region]:
    """Give a region that is offered, and check that it still is to those who may."""
    owner = await TcpTransport.start(TOKEN)
    try:
        region = owner.register(memoryview(b"\1" * size_bytes))
        yield region
        reader = await TcpTransport.start(TOKEN)
        try:
            into = memoryview(bytearray(10))
            await reader.read(region, [Piece(0, 0, 10)], into, 60.0)
            assert bytes(into) == b"\1" * 10
        finally:
            await reader.aclose()
    finally:
        await owner.aclose()


@asynccontextmanager
async def connected(region: Region) -> AsyncIterator[socket.socket]:
    host, _, port = region.peer.rpartition(":")
    with socket.socket() as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
        yield sock


async def check_it_was_closed(sock: socket.socket) -> None:
    """Wait for the end that the other side puts to a connection."""
    try:
        left = await asyncio.get_running_loop().sock_recv(sock, 1)
    except ConnectionError:
        return
    assert left == b""


@pytest.mark.parametrize(
    "first",
    [b"\xff\xff\xff\xff", b"\0\0\0\3abc", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x16" + b"x" * 22],
)
def test_a_stranger_is_shown_the_door(first: bytes) -> None:
    async def scenario() -> None:
        async with serving() as region, connected(region) as sock:
            await asyncio.get_running_loop().sock_sendall(sock, first)
            await check_it_was_closed(sock)

    asyncio.run(scenario())


def test_a_frame_of_4_gib_after_the_handshake_is_not_waited_for() -> None:
    async def scenario() -> None:
        async with serving() as region, connected(region) as sock:
            await greet(sock, TOKEN)
            await asyncio.get_running_loop().sock_sendall(sock, b"\xff\xff\xff\xff")
            await check_it_was_closed(sock)

    asyncio.run(scenario())


def test_another_token_is_refused() -> None:
    async def scenario() -> None:
        async with serving() as region:
            reader = await TcpTransport.start(b"another")
            into = memoryview(bytearray(10))
            try:
                with pytest.raises(Refused, match="another token"):
                    await reader.read(region, [Piece(0, 0, 10)], into, 60.0)
            finally:
                await reader.aclose()
            assert not any(into)

    asyncio.run(scenario())


def test_who_skips_the_proof_gets_nothing() -> None:
    async def scenario() -> None:
        async with serving() as region, connected(region) as sock:
            await send_frame(sock, b"btbK\x00\x01" + bytes(16))
            assert (await receive_frame(sock, 256))[:1] == b"\0"
            await send_frame(sock, pack_request(region, [Piece(0, 0, 10)]))
            answer = b"".join([part async for part in rest(sock)])
            assert b"\1" * 10 not in answer

    asyncio.run(scenario())


async def rest(sock: socket.socket) -> AsyncIterator[bytes]:
    while part := await asyncio.get_running_loop().sock_recv(sock, 4096):
        yield part


def test_another_version_is_told_so() -> None:
    async def scenario() -> None:
        async with serving() as region, connected(region) as sock:
            await send_frame(sock, b"btbK\x00\x09" + bytes(16))
            assert await receive_frame(sock, 256) == b"\1version 9, not 1"
            await check_it_was_closed(sock)

    asyncio.run(scenario())


@pytest.mark.parametrize("body", [b"", b"x" * 43, b"x" * 44, b"x" * 50])
def test_a_request_that_is_none_is_answered_with_a_refusal(body: bytes) -> None:
    async def scenario() -> None:
        async with serving() as region, connected(region) as sock:
            await greet(sock, TOKEN)
            await send_frame(sock, body)
            assert (await receive_frame(sock, 256))[:1] == b"\1"

    asyncio.run(scenario())


def test_a_reader_that_stops_reading_holds_up_nobody_else() -> None:
    async def scenario() -> None:
        async with serving(64 << 20) as region, connected(region) as sock:
            await greet(sock, TOKEN)
            await send_frame(sock, pack_request(region, [Piece(0, 0, 64 << 20)]))
            assert await receive_frame(sock, 256) == b"\0"
            reader = await TcpTransport.start(TOKEN)
            try:
                into = memoryview(bytearray(1 << 20))
                await reader.read(region, [Piece(0, 0, 1 << 20)], into, 60.0)
                assert bytes(into) == b"\1" * (1 << 20)
            finally:
                await reader.aclose()

    asyncio.run(scenario())


def test_a_peer_that_never_answers_ends_with_the_deadline() -> None:
    async def scenario() -> None:
        reader = await TcpTransport.start(TOKEN)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            region = Region(f"127.0.0.1:{silent.getsockname()[1]}", 1, "0" * 32, 10)
            try:
                with pytest.raises(TransferTimeout):
                    await reader.read(region, [Piece(0, 0, 10)], memoryview(bytearray(10)), 0.05)
            finally:
                await reader.aclose()

    asyncio.run(scenario())


def test_where_nobody_listens_nobody_is() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        reader = await TcpTransport.start(TOKEN)
        try:
            region = Region(f"127.0.0.1:{port}", 1, "0" * 32, 10)
            with pytest.raises(PeerGone) as gone:
                await reader.read(region, [Piece(0, 0, 10)], memoryview(bytearray(10)), 60.0)
            assert gone.value.errno is not None
        finally:
            await reader.aclose()

    asyncio.run(scenario())


def test_a_port_that_is_taken_is_said_so() -> None:
    async def scenario() -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as taken,
            pytest.raises(ReplicationError, match="in use"),
        ):
            await TcpTransport.start(TOKEN, port=taken.getsockname()[1])

    asyncio.run(scenario())


@pytest.mark.parametrize(("token", "streams"), [(b"", 4), (TOKEN, 0)])
def test_without_a_token_or_a_stream_nothing_starts(token: bytes, streams: int) -> None:
    with pytest.raises(ValueError, match="are needed"):
        asyncio.run(TcpTransport.start(token, streams=streams))


def test_a_request_is_no_longer_than_a_server_takes() -> None:
    region = Region("127.0.0.1:1", 1, "0" * 32, 10)
    full = pack_request(region, [Piece(0, 0, 1)] * MOST_PIECES)
    assert len(full) == 44 + 16 * MOST_PIECES


def test_what_is_sent_gives_way_to_other_traffic() -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            mark_as_bulk(sock)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY) == 2
            level, option = (
                (socket.IPPROTO_IP, socket.IP_TOS)
                if family == socket.AF_INET
                else (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
            )
            assert sock.getsockopt(level, option) == 0x20


def test_many_small_views_are_filled_in_turn_however_they_come() -> None:
    async def scenario() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            sent = Random(1).randbytes(3_000_000)
            into = memoryview(bytearray(len(sent)))
            views = [into[start : start + 1000] for start in range(0, len(sent), 1000)]
            await asyncio.gather(
                send_views(theirs, [memoryview(sent[:7]), memoryview(sent[7:])]),
                receive_views(ours, views),
            )
            assert bytes(into) == sent

    asyncio.run(scenario())
