"""Reads a peer's memory over TCP, where there is no RDMA."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from errno import EACCES
from typing import Self

from replication.errors import PeerGone, Refused, TransportError
from replication.transports.base import Piece, Region
from replication.transports.deadline import within
from replication.transports.pieces import batches, check_target, total_bytes
from replication.transports.tcp_bulk import receive_views
from replication.transports.tcp_frames import (
    greet,
    quiet,
    receive_ok,
    send_frame,
    socket_errors,
)
from replication.transports.tcp_server import MOST_PIECES, TcpServer, pack_request
from replication.transports.together import together

STREAM_BYTES = 16 << 20
"""A read of less is not worth a second stream: those under way beside it have theirs."""


class TcpTransport:
    """Offers one's own memory on a port, and reads that of peers over several streams.

    Both ends prove that they know the token. What they send then is not encrypted: use it on a
    network that may see the KV. Made by `start`.
    """

    digest_every = 1

    def __init__(self, server: TcpServer, token: bytes, streams: int) -> None:
        self._server = server
        self._token = token
        self._streams = streams
        self._idle: dict[str, list[socket.socket]] = {}
        self._busy: set[socket.socket] = set()
        self._closed = False

    @classmethod
    async def start(
        cls,
        token: bytes,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        epoch: int = 1,
        streams: int = 4,
    ) -> Self:
        """Return a transport that listens.

        Parameters
        ----------
        token
            What peers have to know; the same at both ends.
        host, port
            Where to listen; port 0 for any that is free.
        epoch
            A number that no earlier start at this address had.
        streams
            Connections that one read uses at most.

        Raises
        ------
        ValueError
            If the token is empty or there is no stream.
        TransportError
            If it can't listen there.
        """
        if not token or streams < 1:
            raise ValueError(f"a token and at least 1 stream are needed, got {streams} streams")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket_errors(f"{host}:{port}"):
            listener = socket.create_server((host, port), family=family)
        listener.setblocking(False)
        return cls(TcpServer(listener, token, epoch), token, streams)

    def register(self, memory: memoryview) -> Region:
        """Offer `memory` to peers; its key can't be guessed."""
        return self._server.register(memory)

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        """Bring `pieces`, straight into place, the bytes dealt out over the streams."""
        target = check_target(pieces, into)
        if not pieces:
            return
        each_bytes = max(STREAM_BYTES, -(-total_bytes(pieces) // self._streams))
        async with within(deadline_s):
            await together(
                self._read_one(region, share, target) for share in batches(pieces, each_bytes)
            )

    async def aclose(self) -> None:
        """Close all connections and the port."""
        self._closed = True
        for idle in self._idle.values():
            for sock in idle:
                sock.close()
        self._idle.clear()
        for sock in self._busy:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        await self._server.aclose()

    async def _read_one(self, region: Region, share: list[Piece], target: memoryview) -> None:
        with socket_errors(region.peer):
            sock = await self._connection(region.peer)
            self._busy.add(sock)
            try:
                for start in range(0, len(share), MOST_PIECES):
                    await _fetch(sock, region, share[start : start + MOST_PIECES], target)
            except BaseException:
                sock.close()
                raise
            finally:
                self._busy.discard(sock)
            self._keep(region.peer, sock)

    async def _connection(self, peer: str) -> socket.socket:
        """Return a connection on which nothing is under way."""
        if self._closed:
            raise PeerGone("this end is closed")
        idle = self._idle.get(peer, [])
        while idle:
            sock = idle.pop()
            if quiet(sock):
                return sock
            sock.close()
        host, _, port = peer.rpartition(":")
        if not port.isdecimal():
            raise TransportError(f"{peer!r} is no address", errno=EACCES)
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
            await greet(sock, self._token)
        except BaseException:
            sock.close()
            raise
        return sock

    def _keep(self, peer: str, sock: socket.socket) -> None:
        idle = self._idle.setdefault(peer, [])
        if self._closed or len(idle) >= self._streams:
            sock.close()
        else:
            idle.append(sock)


async def _fetch(
    sock: socket.socket, region: Region, pieces: list[Piece], target: memoryview
) -> None:
    await send_frame(sock, pack_request(region, pieces))
    try:
        await receive_ok(sock)
    except Refused as refused:
        raise TransportError(f"{region.peer}: {refused}", errno=EACCES) from refused
    views = [target[one.target_offset : one.target_offset + one.size_bytes] for one in pieces]
    await receive_views(sock, views)
