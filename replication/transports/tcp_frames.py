"""Frames on a TCP connection, and how two ends make sure of each other."""

import asyncio
import hmac
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EHOSTUNREACH, ENETUNREACH, ETIMEDOUT
from struct import Struct
from typing import NamedTuple

from replication.errors import PeerGone, Refused, TransportError

NONCE_BYTES = 16
HANDSHAKE_BYTES = 256
"""No frame before the handshake is done is longer than this."""
OK, REFUSED = b"\0", b"\1"


class Protocol(NamedTuple):
    """What is spoken after the handshake: four bytes of name, and a version."""

    magic: bytes
    version: int


KV = Protocol(b"btbK", 1)

_length = Struct("!I")
_hello = Struct(f"!4sH{NONCE_BYTES}s")
_LOST = (EHOSTUNREACH, ENETUNREACH, ETIMEDOUT)


@contextmanager
def socket_errors(peer: str) -> Iterator[None]:
    """Raise what the kernel says of a socket as an error of ours, with its errno."""
    try:
        yield
    except OSError as failed:
        if isinstance(failed, ConnectionError) or failed.errno in _LOST:
            raise PeerGone(f"{peer}: {failed}", errno=failed.errno) from failed
        raise TransportError(f"{peer}: {failed}", errno=failed.errno) from failed


async def receive_into(sock: socket.socket, view: memoryview) -> None:
    """Fill `view`.

    Raises
    ------
    PeerGone
        If the connection ends before.
    """
    loop = asyncio.get_running_loop()
    while view:
        count = await loop.sock_recv_into(sock, view)
        if not count:
            raise PeerGone("the peer closed the connection")
        view = view[count:]


async def send_frame(sock: socket.socket, body: bytes) -> None:
    """Send a frame: its length in four bytes, big end first, then `body`."""
    await asyncio.get_running_loop().sock_sendall(sock, _length.pack(len(body)) + body)


async def receive_frame(sock: socket.socket, most_bytes: int) -> bytes:
    """Return the next frame.

    Raises
    ------
    Refused
        If it is said to be longer than `most_bytes`; nothing of it has been read then.
    """
    head = bytearray(_length.size)
    await receive_into(sock, memoryview(head))
    size_bytes = _length.unpack(head)[0]
    if size_bytes > most_bytes:
        raise Refused(f"a frame of {size_bytes} bytes, where {most_bytes} are the most")
    body = bytearray(size_bytes)
    await receive_into(sock, memoryview(body))
    return bytes(body)


async def receive_ok(sock: socket.socket, most_bytes: int = HANDSHAKE_BYTES) -> bytes:
    """Return what follows the status in the next frame.

    Raises
    ------
    Refused
        If the peer refuses; its words are the message.
    """
    answer = await receive_frame(sock, most_bytes)
    if answer[:1] != OK:
        raise Refused(answer[1:].decode(errors="replace") or "the peer refuses")
    return answer[1:]


async def greet(sock: socket.socket, token: bytes, protocol: Protocol = KV) -> None:
    """Open a connection: each end proves that it knows the token, which is never sent.

    Raises
    ------
    Refused
        If the peer has another version or another token.
    """
    ours = secrets.token_bytes(NONCE_BYTES)
    await send_frame(sock, _hello.pack(*protocol, ours))
    answer = await receive_ok(sock)
    theirs, proof = answer[:NONCE_BYTES], answer[NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(token, protocol, b"server", ours + theirs)):
        raise Refused("the peer has another token")
    await send_frame(sock, _proof(token, protocol, b"client", ours + theirs))
    await receive_ok(sock)


async def admit(sock: socket.socket, token: bytes, protocol: Protocol = KV) -> None:
    """Answer `greet`.

    Raises
    ------
    Refused
        If the peer has another version or another token. It has been told so.
    """
    hello = await receive_frame(sock, HANDSHAKE_BYTES)
    if len(hello) != _hello.size:
        raise Refused("this is no greeting")
    magic, version, theirs = _hello.unpack(hello)
    if magic != protocol.magic:
        raise Refused("this is no greeting")
    if version != protocol.version:
        await send_frame(sock, REFUSED + f"version {version}, not {protocol.version}".encode())
        raise Refused(f"a peer of version {version}")
    ours = secrets.token_bytes(NONCE_BYTES)
    await send_frame(sock, OK + ours + _proof(token, protocol, b"server", theirs + ours))
    proof = await receive_frame(sock, HANDSHAKE_BYTES)
    if not hmac.compare_digest(proof, _proof(token, protocol, b"client", theirs + ours)):
        await send_frame(sock, REFUSED + b"another token")
        raise Refused("a peer with another token")
    await send_frame(sock, OK)


def quiet(sock: socket.socket) -> bool:
    """Return whether the peer has neither closed a connection nor sent what nobody asked for."""
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _proof(token: bytes, protocol: Protocol, role: bytes, nonces: bytes) -> bytes:
    """Return what only who knows the token can say, in this protocol and to these nonces."""
    return hmac.digest(token, protocol.magic + role + nonces, "sha256")
