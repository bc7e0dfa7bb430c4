"""Many bytes over a socket that does not block: few calls, few wake-ups, straight into place."""

import asyncio
import socket
from collections.abc import Callable, Sequence

from replication.errors import PeerGone
from replication.transports.pieces import after

VIEWS = 1024
"""The most that the kernel takes in one vectored call (IOV_MAX)."""
WAKE_BYTES = 512 << 10
"""Bytes to wait for before it is worth waking up."""
TURN_BYTES = 4 << 20
"""Bytes after which others on the event loop get their turn, even if there are more."""


async def receive_views(sock: socket.socket, views: Sequence[memoryview]) -> None:
    """Fill `views` in turn.

    Raises
    ------
    PeerGone
        If the connection ends before.
    """
    left, left_bytes = list(views), sum(view.nbytes for view in views)
    turn_bytes = 0
    try:
        while left_bytes:
            try:
                count = sock.recvmsg_into(left[:VIEWS])[0]
            except BlockingIOError:
                _wake_at(sock, min(WAKE_BYTES, left_bytes))
                await _ready(sock, reading=True)
                continue
            if not count:
                raise PeerGone("the peer closed the connection")
            left, left_bytes = after(left, count), left_bytes - count
            turn_bytes += count
            if turn_bytes >= TURN_BYTES:
                turn_bytes = 0
                await asyncio.sleep(0)
    finally:
        _wake_at(sock, 1)


async def send_views(sock: socket.socket, views: Sequence[memoryview]) -> None:
    """Send `views` in turn."""
    left = list(views)
    while left:
        try:
            count = sock.sendmsg(left[:VIEWS])
        except BlockingIOError:
            await _ready(sock, reading=False)
            continue
        left = after(left, count)
        await asyncio.sleep(0)


async def _ready(sock: socket.socket, *, reading: bool) -> None:
    """Return when something can be read from a socket, or written to it."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    watch: Callable[..., None] = loop.add_reader if reading else loop.add_writer
    watch(sock, _set, ready)
    try:
        await ready
    finally:
        if reading:
            loop.remove_reader(sock)
        else:
            loop.remove_writer(sock)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _wake_at(sock: socket.socket, size_bytes: int) -> None:
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size_bytes)
