"""The answering end of a control channel."""

import socket
from collections.abc import Awaitable, Callable

from replication.control.address import CONTROL, tune
from replication.control.messages import REQUEST_BYTES, Request, read_request, write_answer
from replication.errors import Refused, ReplicationError
from replication.transports.accepting import Acceptor
from replication.transports.deadline import within
from replication.transports.tcp_frames import admit, receive_frame, send_frame

HANDSHAKE_S = 5.0
IDLE_S = 60.0
"""How long a connection may be silent, or take to bring a request."""
SEND_S = 10.0
"""How long an answer may take to be taken off us."""


class ControlServer:
    """Passes requests on from whoever knows the token, one at a time on each connection.

    `answer` returns what goes back, or raises a ReplicationError, which goes back as what it is.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: bytes,
        answer: Callable[[Request], Awaitable[object]],
    ) -> None:
        self._token = token
        self._answer = answer
        self._callers = Acceptor(listener, self._talk)

    async def aclose(self) -> None:
        """Stop at once. Requests under way are called off. May be called twice."""
        await self._callers.aclose()

    async def _talk(self, sock: socket.socket) -> None:
        tune(sock)
        async with within(HANDSHAKE_S):
            await admit(sock, self._token, CONTROL)
        while True:
            await self._one(sock)

    async def _one(self, sock: socket.socket) -> None:
        """Answer one request. After a frame that is too long nothing more can be understood."""
        async with within(IDLE_S):
            try:
                frame = await receive_frame(sock, REQUEST_BYTES)
            except Refused as refused:
                await send_frame(sock, write_answer(refused))
                raise
        try:
            answer = await self._answer(read_request(frame))
        except ReplicationError as failed:
            answer = failed
        async with within(SEND_S):
            await send_frame(sock, write_answer(answer))
