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

LOWER_EFFORT = 0x20
"""The class selector that networks may serve last: CS1, RFC 3662."""
PRIORITY_BULK = 2
"""What the kernel's own queues serve last: TC_PRIO_BULK of linux/pkt_sched.h."""


def mark_as_bulk(sock: socket.socket) -> None:
    """Let what is sent give way to other traffic, where a queue on the way looks at that.

    For who sends KV, not for who asks for it: what waits for a request is then behind it in line.
    """
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, LOWER_EFFORT)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, LOWER_EFFORT)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, PRIORITY_BULK)  # the other resets it


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
