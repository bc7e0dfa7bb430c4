"""The end of a verbs transport that others read from: it only connects queue pairs."""

import asyncio
import socket
from contextlib import ExitStack, closing

from replication.transports.accepting import Acceptor
from replication.transports.deadline import within
from replication.transports.verbs_device import QueuePair, VerbsDevice
from replication.transports.verbs_handshake import Endpoint, welcome

HANDSHAKE_S = 5.0


class VerbsServer:
    """Gives a queue pair to each reader that knows the token, for as long as it stays."""

    def __init__(
        self, listener: socket.socket, device: VerbsDevice, token: bytes, epoch: int
    ) -> None:
        self._device = device
        self._token = token
        self._epoch = epoch
        host, port = listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self._readers = Acceptor(listener, self._talk)

    async def aclose(self) -> None:
        """Take all readers' queue pairs away. May be called twice."""
        await self._readers.aclose()

    async def _talk(self, sock: socket.socket) -> None:
        def connect(remote: Endpoint) -> Endpoint:
            pair = held.enter_context(closing(QueuePair(self._device)))
            pair.connect(remote)
            return pair.endpoint

        with ExitStack() as held:
            async with within(HANDSHAKE_S):
                await welcome(sock, self._epoch, self._token, connect)
            # It sends nothing more: whatever comes, its end most likely, ends it.
            await asyncio.get_running_loop().sock_recv(sock, 1)
