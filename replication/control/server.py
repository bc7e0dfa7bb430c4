"""The answering end of a control channel."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from replication.control.address import CONTROL, tune
from replication.control.messages import REQUEST_BYTES, Request, read_request, write_answer
from replication.errors import Refused, ReplicationError
from replication.transports.deadline import within
from replication.transports.tcp_frames import admit, receive_frame, send_frame, socket_errors

CONNECTIONS = 256
"""Held at once; further ones are closed."""
HANDSHAKE_S = 5.0
IDLE_S = 60.0
"""How long a connection may be silent, or take to bring a request."""
SEND_S = 10.0
"""How long an answer may take to be taken off us."""
PAUSE_S = 0.1
"""How long to leave the listener alone where the kernel gives no more descriptors."""

logger = logging.getLogger(__name__)


class ControlServer:
    """Passes requests on from whoever knows the token, one at a time on each connection.

    `answer` returns what goes back, or raises a ReplicationError, which goes back as what it is.
    Any other error is a bug: it is logged, and ends the connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: bytes,
        answer: Callable[[Request], Awaitable[object]],
    ) -> None:
        self._listener = listener
        self._token = token
        self._answer = answer
        self._talks: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    async def aclose(self) -> None:
        """Stop at once. Requests under way are called off. May be called twice."""
        ending = [self._accepting, *self._talks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        while True:
            try:
                sock, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            except OSError as failed:
                logger.warning("no connection can be taken: %s", failed)
                await asyncio.sleep(PAUSE_S)
                continue
            if len(self._talks) >= CONNECTIONS:
                sock.close()
                continue
            talk = asyncio.create_task(self._talk(sock))
            self._talks.add(talk)
            talk.add_done_callback(self._hang_up)

    def _hang_up(self, talk: asyncio.Task[None]) -> None:
        self._talks.discard(talk)
        if not talk.cancelled() and (bug := talk.exception()) is not None:
            logger.error("a request failed", exc_info=bug)

    async def _talk(self, sock: socket.socket) -> None:
        try:
            with sock, socket_errors("a caller"):
                tune(sock)
                async with within(HANDSHAKE_S):
                    await admit(sock, self._token, CONTROL)
                while True:
                    await self._one(sock)
        except ReplicationError as ended:
            logger.info("a caller left: %s", ended)

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
