"""One connection to a peer's memory: reads posted, many at once, and waited for."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from replication.errors import PeerGone, TransportError
from replication.transports.scatter import ScatterRead
from replication.transports.tcp_frames import socket_errors
from replication.transports.verbs_device import QueuePair, Registration, VerbsDevice
from replication.transports.verbs_handshake import introduce

SIGNALS = 4
"""How often in a full queue a read is signalled: each completion costs, so not for all."""


class VerbsLink:
    """A queue pair connected to a peer's. One read at a time; any failure is its end.

    That is what keeps memory safe: once the queue pair is gone, the device writes nothing for it.
    """

    def __init__(self, pair: QueuePair, sock: socket.socket, outstanding: int) -> None:
        self._pair = pair
        self._sock = sock
        self._outstanding = outstanding
        self._wake: asyncio.Future[None] | None = None
        self._ended: TransportError | None = None
        self._watching = asyncio.create_task(self._watch())
        # Not before the loop has let go of it: its number may be given to another.
        self._watching.add_done_callback(lambda _: sock.close())

    @classmethod
    async def connect(cls, device: VerbsDevice, peer: str, epoch: int, token: bytes) -> Self:
        """Return a link to `peer`, "host:port", as it was in `epoch`.

        Raises
        ------
        TransportError, Refused
            If there is none to be had.
        """
        host, _, port = peer.rpartition(":")
        if not port.isdecimal():
            raise TransportError(f"{peer!r} is no host:port")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            with socket_errors(peer):
                sock.setblocking(False)
                await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
                pair = QueuePair(device)
                try:
                    pair.connect(await introduce(sock, epoch, token, pair.endpoint))
                except BaseException:
                    pair.close()
                    raise
        except BaseException:
            sock.close()
            raise
        return cls(pair, sock, device.settings.outstanding)

    @property
    def usable(self) -> bool:
        """Tell whether reads may still be tried."""
        return self._ended is None

    async def read(
        self,
        requests: Sequence[ScatterRead],
        source: tuple[int, int],
        target_address: int,
        target: Registration,
    ) -> None:
        """Carry out `requests`: offsets are from `source`, an address and key, and from the target.

        Raises
        ------
        TransportError
            If one fails. The link can't be used again then.
        """
        address, key = source
        every = max(1, self._outstanding // SIGNALS)
        posted = done = 0
        try:
            while done < len(requests):
                while posted < min(len(requests), done + self._outstanding):
                    request = requests[posted]
                    spans = [(target_address + offset, size) for offset, size in request.spans]
                    last = posted + 1 == len(requests)
                    self._pair.post_read(
                        posted,
                        (address + request.source_offset, key),
                        spans,
                        target.local_key,
                        signalled=last or (posted + 1) % every == 0,
                    )
                    posted += 1
                done = max([done, *(number + 1 for number in await self._completed())])
        except BaseException:
            self.close()
            raise

    def close(self, reason: str = "this end is closed") -> None:
        """End it; nothing is written for it afterwards. May be called twice."""
        if self._ended is None:
            self._end(PeerGone(reason))

    async def _completed(self) -> list[int]:
        """Return what is done, after waiting for something to be."""
        await asyncio.sleep(0)  # others on the loop get their turn, and so do deadlines
        while True:
            if self._ended is not None:
                raise self._ended
            found = self._pair.completed()
            if not found:
                self._pair.arm()
                # What came between the look and the arming makes no event.
                found = self._pair.completed()
            if found:
                return found
            await self._event()

    async def _event(self) -> None:
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        loop.add_reader(self._pair.event_file, self._woken)
        try:
            await self._wake
        finally:
            self._wake = None
            if self._ended is None:
                loop.remove_reader(self._pair.event_file)
        if self._ended is None:
            self._pair.take_event()

    def _woken(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _watch(self) -> None:
        """Wait for the peer to go: it sends nothing, so whatever comes is its end."""
        with suppress(OSError):
            await asyncio.get_running_loop().sock_recv(self._sock, 1)
        if self._ended is None:
            self._end(PeerGone("the peer closed"))

    def _end(self, reason: TransportError) -> None:
        self._ended = reason
        if self._wake is not None:
            # Its file is about to be closed, and its number may be given to another.
            asyncio.get_running_loop().remove_reader(self._pair.event_file)
        self._woken()
        self._watching.cancel()
        self._pair.close()
