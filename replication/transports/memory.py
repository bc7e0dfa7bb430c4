"""A network inside one process: for tests, and for trying things out without one."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from errno import EACCES

from replication.errors import PeerGone, TransportError
from replication.transports.base import Piece, Region
from replication.transports.deadline import within
from replication.transports.pieces import check_target

Wire = Callable[[Region, Piece, memoryview], Awaitable[bytes | memoryview]]
"""Is given what a peer holds of a piece and returns what arrives of it; may wait, or raise."""


async def intact(region: Region, piece: Piece, held: memoryview) -> memoryview:
    """Bring all of it, as it is."""
    await asyncio.sleep(0)
    return held


async def cut_short(region: Region, piece: Piece, held: memoryview) -> memoryview:
    """Lose the last byte."""
    return held[:-1]


async def corrupted(region: Region, piece: Piece, held: memoryview) -> bytes:
    """Turn one bit over, in the first byte."""
    return bytes([held[0] ^ 1]) + bytes(held[1:])


async def gone(region: Region, piece: Piece, held: memoryview) -> memoryview:
    """Find nobody at the other end."""
    raise PeerGone(f"{region.peer} is gone")


async def stalled(region: Region, piece: Piece, held: memoryview) -> memoryview:
    """Never arrive."""
    await asyncio.Event().wait()
    return held


def delayed(seconds: float) -> Wire:
    """Return a wire that takes so long for each piece."""

    async def wire(region: Region, piece: Piece, held: memoryview) -> memoryview:
        await asyncio.sleep(seconds)
        return held

    return wire


def meanwhile(happens: Callable[[], object]) -> Wire:
    """Return a wire during whose way something happens: a block is recycled, a peer restarts."""

    async def wire(region: Region, piece: Piece, held: memoryview) -> memoryview:
        happens()
        return held

    return wire


def nth(number: int, fault: Wire) -> Wire:
    """Return a wire on which only the `number`-th piece, from 1 on, meets `fault`."""
    seen = 0

    async def wire(region: Region, piece: Piece, held: memoryview) -> bytes | memoryview:
        nonlocal seen
        seen += 1
        return await (fault if seen == number else intact)(region, piece, held)

    return wire


class MemoryTransport:
    """Reads memory of peers in the same process, over a wire that may do whatever a test needs.

    Parameters
    ----------
    peer
        One's own name.
    network
        Who can be reached, by name; one enters oneself, in place of an earlier one of that name.
    epoch
        Regions are good for this one only.
    wire
        What its reads go over.
    """

    digest_every = 1

    def __init__(
        self,
        peer: str,
        network: MutableMapping[str, "MemoryTransport"],
        epoch: int = 1,
        wire: Wire = intact,
    ) -> None:
        self._peer = peer
        self._network = network
        self._epoch = epoch
        self.wire = wire
        self._memories: list[memoryview] = []
        self._closed = False
        network[peer] = self

    def register(self, memory: memoryview) -> Region:
        """Make `memory` readable by whoever is on the network."""
        self._memories.append(memory.cast("B").toreadonly())
        return Region(self._peer, self._epoch, str(len(self._memories) - 1), memory.nbytes)

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        """Bring `pieces`, one after the other."""
        target = check_target(pieces, into)
        async with within(deadline_s):
            for piece in pieces:
                arrived = await self.wire(region, piece, self._held(region, piece))
                self._held(region, piece)
                if len(arrived) != piece.size_bytes:
                    raise TransportError(f"{len(arrived)} bytes arrived of {piece.size_bytes}")
                target[piece.target_offset : piece.target_offset + piece.size_bytes] = arrived

    async def aclose(self) -> None:
        """Leave the network."""
        self._closed = True
        self._memories.clear()

    def _held(self, region: Region, piece: Piece) -> memoryview:
        if self._closed:
            raise PeerGone("this end is closed")
        owner = self._network.get(region.peer)
        if owner is None or owner._closed:
            raise PeerGone(f"{region.peer} is gone")
        known = {str(number): memory for number, memory in enumerate(owner._memories)}
        memory = known.get(region.key)
        if memory is None or region.epoch != owner._epoch:
            raise TransportError(f"{region.peer} offers no such region", errno=EACCES)
        if piece.source_offset + piece.size_bytes > memory.nbytes:
            raise TransportError(f"{piece} ends outside of the region", errno=EACCES)
        return memory[piece.source_offset : piece.source_offset + piece.size_bytes]
