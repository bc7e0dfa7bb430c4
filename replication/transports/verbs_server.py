"""The end of a verbs transport that others read from: it only connects queue pairs."""

import asyncio
import logging
import socket
from contextlib import ExitStack, closing

from replication.errors import ReplicationError
from replication.transports.deadline import within
from replication.transports.tcp_frames import socket_errors
from replication.transports.verbs_device import QueuePair, VerbsDevice
from replication.transports.verbs_handshake import Endpoint, welcome

CONNECTIONS = 256
"""Readers at once; further ones are closed."""

HANDSHAKE_S = 5.0
ACCEPT_AGAIN_S = 0.5

logger = logging.getLogger(__name__)


class VerbsServer:
    """Gives a queue pair to each reader that knows the token, for as long as it stays."""

    def __init__(
        self, listener: socket.socket, device: VerbsDevice, token: bytes, epoch: int
    ) -> None:
        self._listener = listener
        self._device = device
        self._token = token
        self._epoch = epoch
        host, port = listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._talks: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept())

    async def aclose(self) -> None:
        """Take all readers' queue pairs away. May be called twice."""
        ending = [self._accepting, *self._talks]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        while True:
            try:
                sock, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            except OSError as failed:  # no files left, most likely: that passes
                logger.warning("can't accept a reader at %s: %s", self.address, failed)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if len(self._talks) >= CONNECTIONS:
                sock.close()
                continue
            talk = asyncio.create_task(self._talk(sock))
            self._talks.add(talk)
            talk.add_done_callback(self._talks.discard)

    async def _talk(self, sock: socket.socket) -> None:
        def connect(remote: Endpoint) -> Endpoint:
            pair = held.enter_context(closing(QueuePair(self._device)))
            pair.connect(remote)
            return pair.endpoint

        try:
            with sock, socket_errors("a reader"), ExitStack() as held:
                sock.setblocking(False)
                async with within(HANDSHAKE_S):
                    await welcome(sock, self._epoch, self._token, connect)
                # It sends nothing more: whatever comes, its end most likely, ends it.
                await asyncio.get_running_loop().sock_recv(sock, 1)
        except ReplicationError as ended:
            logger.info("a reader of %s left: %s", self.address, ended)
