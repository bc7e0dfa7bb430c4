"""Where an agent listens, and sockets to and from there."""

import asyncio
import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from errno import EADDRINUSE, ETIMEDOUT
from ipaddress import ip_address
from typing import Self

from replication.errors import PeerGone, TransferTimeout, TransportError
from replication.transports.deadline import within
from replication.transports.tcp_frames import Protocol, greet, socket_errors

CONTROL = Protocol(b"btbC", 1)
"""The control channel; a change of its messages is a new version."""
CONNECT_S = 2.0
"""How long a peer may take to let one in."""
MOST_PATH_BYTES = 99
"""The kernel takes 107 as the path of a Unix socket; it has a process id after it at first."""
KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
UNANSWERED_MS = 20_000
"""A connection ends when the other host has been silent for about so long, asked or not."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, or the path of a Unix socket.

    >>> str(Address.parse("[::1]:8018")), Address.parse("[::1]:8018").local
    ('[::1]:8018', True)
    >>> Address.parse("10.0.0.7:8018").local, Address.parse("unix:/run/btb.sock").local
    (False, True)
    """

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address written as HOST:PORT or unix:PATH.

        Raises
        ------
        ValueError
            If it is neither.
        """
        kind, colon, path = text.partition(":")
        if kind == "unix" and colon:
            if not path or len(os.fsencode(path)) > MOST_PATH_BYTES:
                raise ValueError(f"{text!r}: a path of 1 to {MOST_PATH_BYTES} bytes was expected")
            return cls(path=path)
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"{text!r} is no address; expected HOST:PORT or unix:PATH")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def local(self) -> bool:
        """Whether only this machine reaches it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def family(self) -> socket.AddressFamily:
        """What sockets to it are of."""
        if self.path:
            return socket.AF_UNIX
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def __str__(self) -> str:
        """Return what `parse` takes."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listen(address: Address) -> tuple[socket.socket, Address]:
    """Return a socket that listens, and where: port 0 is any that is free.

    A Unix socket is for this user only.

    Raises
    ------
    TransportError
        If it can't be had. A socket that a dead process left behind is taken over.
    """
    with socket_errors(str(address)):
        if address.path:
            listener = _listen_unix(address)
        else:
            where = (address.host, address.port)
            listener = socket.create_server(where, family=address.family)
    listener.setblocking(False)
    if address.path:
        return listener, address
    return listener, replace(address, port=listener.getsockname()[1])


async def connect(address: Address, token: bytes) -> socket.socket:
    """Return a connection to an agent, both ends sure of each other.

    Raises
    ------
    PeerGone
        If nobody lets one in within `CONNECT_S`.
    Refused
        If the agent has another version or another token.
    TransportError
        If the address can't be used at all.
    """
    sock = socket.socket(address.family)
    try:
        with socket_errors(str(address)):
            tune(sock)
            where = address.path or (address.host, address.port)
            async with within(CONNECT_S):
                await asyncio.get_running_loop().sock_connect(sock, where)
                await greet(sock, token, CONTROL)
    except BaseException as failed:
        sock.close()
        if isinstance(failed, TransferTimeout):
            raise PeerGone(f"{address} doesn't answer", errno=ETIMEDOUT) from failed
        if isinstance(failed.__cause__, FileNotFoundError):
            raise PeerGone(str(failed), errno=failed.__cause__.errno) from failed
        raise
    return sock


def tune(sock: socket.socket) -> None:
    """Make a connection quick, and have it end when the other host is gone."""
    sock.setblocking(False)
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_MS)
    for option, value in KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _listen_unix(address: Address) -> socket.socket:
    """Bind under a name of one's own first: at its place nobody ever finds it open to all."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(address.path).st_mode) or _answers(address.path):
            raise TransportError(f"{address} is in use", errno=EADDRINUSE)
    mine = f"{address.path}.{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(mine)
        os.chmod(mine, 0o600)
        listener.listen()
        os.rename(mine, address.path)
    except BaseException:
        listener.close()
        raise
    return listener


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:  # so many wait there already that no more are taken
            return True
    return True
