"""How two ends of a verbs connection tell each other their queue pairs, over TCP.

Both prove first that they know the token. The TCP connection then stays, without traffic: its end
is how each learns that the other is gone.
"""

import socket
from collections.abc import Callable
from dataclasses import astuple, dataclass
from errno import EACCES
from struct import Struct

from replication.errors import TransportError
from replication.transports.tcp_frames import (
    HANDSHAKE_BYTES,
    OK,
    REFUSED,
    admit,
    greet,
    receive_frame,
    receive_ok,
    send_frame,
)

EPOCH = Struct("!Q")
ENDPOINT = Struct("!II16sBB")
STALE = b"stale"
"""Sent in place of an endpoint by who has started anew since the epoch that was meant."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A queue pair as the other end needs to know it.

    `psn` is where its packet numbers begin, `gid` its address in 16 bytes, `mtu` its largest in the
    code of verbs (1 is 256 bytes, 5 is 4,096), `reads` how many reads it serves at once.
    """

    number: int
    psn: int
    gid: bytes
    mtu: int
    reads: int


async def introduce(sock: socket.socket, epoch: int, token: bytes, mine: Endpoint) -> Endpoint:
    """Tell a peer of one's own end, and return its.

    Raises
    ------
    Refused
        If it has another version or token, or no queue pair to give.
    TransportError
        If it has started anew since `epoch`, or closes.
    """
    await greet(sock, token)
    await send_frame(sock, EPOCH.pack(epoch) + ENDPOINT.pack(*astuple(mine)))
    answer = await receive_ok(sock)
    if answer == STALE:
        raise TransportError("the peer has started anew and offers no such region", errno=EACCES)
    if len(answer) != ENDPOINT.size:
        raise TransportError("the peer's answer is none of this handshake")
    return Endpoint(*ENDPOINT.unpack(answer))


async def welcome(
    sock: socket.socket, epoch: int, token: bytes, connect: Callable[[Endpoint], Endpoint]
) -> None:
    """Answer `introduce`; `connect` makes one's own end, connected to the one it is given.

    Raises
    ------
    Refused
        If the other end has another version or token.
    TransportError
        If it means another epoch, sends something else, or `connect` can't. It has been told.
    """
    await admit(sock, token)
    hello = await receive_frame(sock, HANDSHAKE_BYTES)
    if len(hello) != EPOCH.size + ENDPOINT.size:
        raise TransportError("a peer that sends something else")
    (meant,) = EPOCH.unpack_from(hello)
    if meant != epoch:
        await send_frame(sock, OK + STALE)
        raise TransportError(f"a peer that means epoch {meant}, which is not {epoch}")
    try:
        mine = connect(Endpoint(*ENDPOINT.unpack_from(hello, EPOCH.size)))
    except TransportError as failed:
        await send_frame(sock, REFUSED + str(failed).encode()[: HANDSHAKE_BYTES - 1])
        raise
    await send_frame(sock, OK + ENDPOINT.pack(*astuple(mine)))
