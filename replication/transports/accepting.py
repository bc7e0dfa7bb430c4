"""Takes connections, and talks with each in a task of its own."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from replication.errors import ReplicationError
from replication.transports.tcp_frames import socket_errors

CONNECTIONS = 256
"""Held at once; further ones are closed."""
PAUSE_S = 0.1
"""How long to leave a listener alone where the kernel gives no more descriptors."""

logger = logging.getLogger(__name__)


class Acceptor:
    """Holds a listener, and the connections that have come by it until `talk` is done with them.

    A ReplicationError that comes out of `talk` is how connections end, and is logged as that. Any
    other error is a bug: it is logged with its traceback, and ends the one connection.
    """

    def __init__(
        self, listener: socket.socket, talk: Callable[[socket.socket], Awaitable[None]]
    ) -> None:
        self._listener = listener
        self._talk = talk
        self._talks: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    def __len__(self) -> int:
        """Return how many connections there are."""
        return len(self._talks)

    async def aclose(self) -> None:
        """Break all connections off and listen no more. May be called twice."""
        ending = [self._accepting, *self._talks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        while True:
            try:
                sock, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            except OSError as failed:  # no descriptors left, most likely: that passes
                logger.warning("can't take a connection: %s", failed)
                await asyncio.sleep(PAUSE_S)
                continue
            if len(self._talks) >= CONNECTIONS:
                sock.close()
                continue
            talk = asyncio.create_task(self._hold(sock))
            self._talks.add(talk)
            talk.add_done_callback(self._hang_up)

    async def _hold(self, sock: socket.socket) -> None:
        try:
            with sock, socket_errors("a peer"):
                sock.setblocking(False)
                await self._talk(sock)
        except ReplicationError as ended:
            logger.info("a connection ended: %s", ended)

    def _hang_up(self, talk: asyncio.Task[None]) -> None:
        self._talks.discard(talk)
        if not talk.cancelled() and (bug := talk.exception()) is not None:
            logger.error("a connection ended by a bug", exc_info=bug)
