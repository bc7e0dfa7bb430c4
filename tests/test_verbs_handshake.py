"""The handshake over a pair of sockets; it needs no device."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from replication.errors import Refused, TransportError
from replication.transports.tcp_frames import admit, greet, receive_frame, send_frame
from replication.transports.verbs_handshake import Endpoint, introduce, welcome

TOKEN = b"the same at both ends"
READER = Endpoint(17, 0xABCDEF, bytes(range(16)), 5, 128)
SERVED = Endpoint(18, 7, bytes(range(16, 32)), 3, 16)

End = Callable[[socket.socket], Awaitable[object]]


async def talk(one: End, other: End) -> tuple[object, object]:
    """Return what came of both ends, errors as values."""

    async def run(end: End, sock: socket.socket) -> object:
        sock.setblocking(False)
        with sock:
            return await end(sock)

    first, second = socket.socketpair()
    async with asyncio.timeout(10.0):
        outcome = await asyncio.gather(run(one, first), run(other, second), return_exceptions=True)
    return outcome[0], outcome[1]


def met(
    *, token: bytes = TOKEN, epoch: int = 1, connect: Callable[[Endpoint], Endpoint]
) -> tuple[object, object]:
    return asyncio.run(
        talk(
            lambda sock: introduce(sock, epoch, token, READER),
            lambda sock: welcome(sock, 1, TOKEN, connect),
        )
    )


def test_each_end_learns_of_the_others() -> None:
    told: list[Endpoint] = []

    def connect(remote: Endpoint) -> Endpoint:
        told.append(remote)
        return SERVED

    assert met(connect=connect) == (SERVED, None)
    assert told == [READER]


@pytest.mark.parametrize(
    ("token", "epoch", "error"), [(b"another", 1, Refused), (TOKEN, 2, TransportError)]
)
def test_nothing_is_connected_for_another_token_or_epoch(
    token: bytes, epoch: int, error: type[Exception]
) -> None:
    def connect(remote: Endpoint) -> Endpoint:
        raise AssertionError("connected")

    reading, _ = met(token=token, epoch=epoch, connect=connect)
    assert type(reading) is error


def test_the_reader_learns_why_there_is_no_queue_pair() -> None:
    def connect(remote: Endpoint) -> Endpoint:
        raise TransportError("can't make a queue pair: " + "no memory " * 100)

    reading, serving = met(connect=connect)
    assert isinstance(reading, Refused)
    assert "can't make a queue pair: no memory" in str(reading)
    assert isinstance(serving, TransportError)


@pytest.mark.parametrize("body", [b"", b"\0" * 33, b"\0" * 35])
def test_a_frame_of_another_size_is_refused_by_who_is_read_from(body: bytes) -> None:
    async def stranger(sock: socket.socket) -> None:
        await greet(sock, TOKEN)
        await send_frame(sock, body)

    _, serving = asyncio.run(talk(stranger, lambda sock: welcome(sock, 1, TOKEN, lambda _: SERVED)))
    assert isinstance(serving, TransportError)
    assert "something else" in str(serving)


@pytest.mark.parametrize("body", [b"\0", b"\0" + b"\0" * 25, b"\0" + b"\0" * 27])
def test_a_frame_of_another_size_is_refused_by_the_reader(body: bytes) -> None:
    async def stranger(sock: socket.socket) -> None:
        await admit(sock, TOKEN)
        await receive_frame(sock, 256)
        await send_frame(sock, body)

    reading, _ = asyncio.run(talk(lambda sock: introduce(sock, 1, TOKEN, READER), stranger))
    assert isinstance(reading, TransportError)
    assert "none of this handshake" in str(reading)
