"""The end of a TCP transport that others read from."""

import socket
from errno import EACCES
from secrets import token_hex
from struct import Struct, error

from replication.errors import TransportError
from replication.transports.accepting import Acceptor
from replication.transports.base import Piece, Region
from replication.transports.deadline import within
from replication.transports.tcp_bulk import mark_as_bulk, send_views
from replication.transports.tcp_frames import (
    OK,
    REFUSED,
    admit,
    receive_frame,
    send_frame,
)

MOST_PIECES = 4096
"""Pieces in one request; who wants more asks again."""
HANDSHAKE_S = 5.0
SEND_S = 60.0
"""How long one request may take to be taken off us: a reader that stops must not hold us up."""
KEY_BYTES = 16

_head = Struct(f"!{2 * KEY_BYTES}sQI")
_piece = Struct("!QQ")
REQUEST_BYTES = _head.size + MOST_PIECES * _piece.size


def pack_request(region: Region, pieces: list[Piece]) -> bytes:
    """Return the frame that asks for `pieces`, `MOST_PIECES` at most.

    Raises
    ------
    TransportError
        If the region isn't one of a TCP transport.
    """
    try:
        head = _head.pack(region.key.encode(), region.epoch, len(pieces))
    except error as failed:
        raise TransportError("this is no region of a TCP transport", errno=EACCES) from failed
    return head + b"".join(_piece.pack(one.source_offset, one.size_bytes) for one in pieces)


class TcpServer:
    """Offers memory to whoever knows the token. Bytes go from it to the kernel without a copy."""

    def __init__(self, listener: socket.socket, token: bytes, epoch: int) -> None:
        self._token = token
        self._epoch = epoch
        host, port = listener.getsockname()[:2]
        self._address = f"{host}:{port}"
        self._memories: dict[bytes, memoryview] = {}
        self._readers = Acceptor(listener, self._talk)

    def register(self, memory: memoryview) -> Region:
        """Offer `memory`."""
        key = token_hex(KEY_BYTES)
        self._memories[key.encode()] = memory.cast("B").toreadonly()
        return Region(self._address, self._epoch, key, memory.nbytes)

    async def aclose(self) -> None:
        """Stop at once, in the middle of an answer too."""
        self._memories.clear()
        await self._readers.aclose()

    async def _talk(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        mark_as_bulk(sock)
        async with within(HANDSHAKE_S):
            await admit(sock, self._token)
        while True:
            request = await receive_frame(sock, REQUEST_BYTES)
            async with within(SEND_S):
                await self._answer(sock, request)

    async def _answer(self, sock: socket.socket, request: bytes) -> None:
        views = self._find(request)
        if isinstance(views, str):
            await send_frame(sock, REFUSED + views.encode())
            return
        await send_frame(sock, OK)
        await send_views(sock, views)

    def _find(self, request: bytes) -> list[memoryview] | str:
        """Return what is asked for, or why not."""
        if len(request) < _head.size or (len(request) - _head.size) % _piece.size:
            return "this is no request"
        key, epoch, count = _head.unpack_from(request)
        wanted = list(_piece.iter_unpack(request[_head.size :]))
        if len(wanted) != count:
            return "this is no request"
        memory = self._memories.get(key)
        if memory is None or epoch != self._epoch:
            return "no such region is offered"
        if any(offset + size_bytes > memory.nbytes for offset, size_bytes in wanted):
            return "a piece ends outside of the region"
        return [memory[offset : offset + size_bytes] for offset, size_bytes in wanted]
