"""The asking end of a control channel."""

import asyncio
import socket
from typing import TypeVar

from replication.control.address import Address, connect
from replication.control.messages import ANSWER_BYTES, Request, read_answer, write_request
from replication.errors import PeerGone, TransferTimeout
from replication.transports.deadline import within
from replication.transports.tcp_frames import quiet, receive_frame, send_frame, socket_errors

MOST_IDLE = 8
"""Connections kept for the next request."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
"""Between tries to reach a peer, each pause twice as long as the one before."""

T = TypeVar("T")


class Channel:
    """Asks one peer, over a connection for each request that is under way.

    It reconnects by itself: a request that finds nobody, or whose connection ends, is sent again.
    So what is asked may be done twice.

    Parameters
    ----------
    address
        Where the peer listens.
    token
        What both ends have to know.
    patience_s
        How long to try again, from when the peer was last reached.
    """

    def __init__(self, address: Address, token: bytes, patience_s: float) -> None:
        self._address = address
        self._token = token
        self._patience_s = patience_s
        self._idle: list[socket.socket] = []
        self._closed = False

    async def ask(self, request: Request, kind: type[T], wait_s: float) -> T:
        """Return the answer to `request`, which is a `kind`.

        Raises
        ------
        TransferTimeout
            If there is none `wait_s` seconds from now.
        PeerGone
            If the peer can't be reached.
        Refused
            If it doesn't talk to us, or not in this way.
        ReplicationError
            What the peer answers with.
        """
        frame = write_request(request)
        try:
            async with within(wait_s):
                answer = await self._persist(frame)
        except TransferTimeout as late:
            raise TransferTimeout(f"{self._address} has not answered: {late}") from late
        return read_answer(answer, kind)

    def close(self) -> None:
        """Let go of connections; those in use end with their request. May be called twice."""
        self._closed = True
        for sock in self._idle:
            sock.close()
        self._idle.clear()

    async def _persist(self, frame: bytes) -> bytes:
        """Send `frame` until it is answered, or until the peer has been out of reach for long."""
        loop = asyncio.get_running_loop()
        reached_s, pause_s = loop.time(), FIRST_PAUSE_S
        while True:
            try:
                sock = await self._connection()
                try:
                    return await self._exchange(sock, frame)
                finally:
                    reached_s = loop.time()
            except PeerGone:
                if self._closed or loop.time() + pause_s > reached_s + self._patience_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2.0 * pause_s, LONGEST_PAUSE_S)

    async def _exchange(self, sock: socket.socket, frame: bytes) -> bytes:
        try:
            with socket_errors(str(self._address)):
                await send_frame(sock, frame)
                answer = await receive_frame(sock, ANSWER_BYTES)
        except BaseException:
            sock.close()
            raise
        if self._closed or len(self._idle) >= MOST_IDLE:
            sock.close()
        else:
            self._idle.append(sock)
        return answer

    async def _connection(self) -> socket.socket:
        if self._closed:
            raise PeerGone("this end is closed")
        while self._idle:
            sock = self._idle.pop()
            if quiet(sock):
                return sock
            sock.close()
        return await connect(self._address, self._token)
