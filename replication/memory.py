"""What a pool lies in: memory of the host, or of a device that only a stream reaches."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from replication.threads import in_thread
from replication.transports.base import Piece, Region, Transport
from replication.transports.pieces import batches


class Stream(Protocol):
    """Copies between a device's memory and pinned memory of the host, one after the other."""

    def to_device(self, offset: int, source: memoryview) -> None:
        """Begin to copy `source`, pinned, to the device. It must not change before it is done."""
        ...

    def to_host(self, offset: int, target: memoryview) -> None:
        """Begin to fill `target`, pinned, from a place on the device."""
        ...

    def wait(self) -> None:
        """Return once all that was begun is done. Called in a thread."""
        ...


class DeviceMemory:
    """A device's memory. It is written by way of pinned buffers, each with a stream of its own.

    While one buffer is copied to the device the next is filled from the network.

    Parameters
    ----------
    size_bytes
        How much there is.
    lanes
        Pinned buffers, all of a size, and the stream of each.

    Raises
    ------
    ValueError
        If there is no buffer, or one has no bytes or another size.
    """

    def __init__(self, size_bytes: int, lanes: Sequence[tuple[memoryview, Stream]]) -> None:
        sizes = {pinned.nbytes for pinned, _ in lanes}
        if len(sizes) != 1 or 0 in sizes:
            raise ValueError(f"pinned buffers of one size are needed, got {sorted(sizes)} bytes")
        self.nbytes = size_bytes
        (self._buffer_bytes,) = sizes
        self._idle: asyncio.Queue[tuple[memoryview, Stream]] = asyncio.Queue()
        self._lanes = [(pinned.cast("B"), stream) for pinned, stream in lanes]
        for lane in self._lanes:
            self._idle.put_nowait(lane)
        self._looking = self._lanes[0][1]

    def __getitem__(self, stretch: slice, /) -> memoryview:
        """Return a copy of some bytes. Blocks meanwhile; call it in a thread."""
        start, stop, _ = stretch.indices(self.nbytes)
        copy = memoryview(bytearray(stop - start))
        self._looking.to_host(start, copy)
        self._looking.wait()
        return copy

    async def fill(
        self, transport: Transport, region: Region, pieces: Sequence[Piece], deadline_s: float
    ) -> None:
        """Read pieces of a peer's region by a transport, and have all on the device on return.

        Raises as `Transport.read` does. However it ends, nothing is under way afterwards.
        """
        for piece in pieces:
            if not 0 <= piece.target_offset <= self.nbytes - piece.size_bytes:
                raise ValueError(f"{piece} ends outside of {self.nbytes} bytes of memory")
        for batch in batches(pieces, self._buffer_bytes):
            lane = await self._idle.get()
            try:
                await self._fill_batch(transport, region, batch, lane, deadline_s)
            finally:
                self._idle.put_nowait(lane)

    async def _fill_batch(
        self,
        transport: Transport,
        region: Region,
        batch: Sequence[Piece],
        lane: tuple[memoryview, Stream],
        deadline_s: float,
    ) -> None:
        pinned, stream = lane
        staged, at = [], 0
        for piece in batch:
            staged.append(Piece(piece.source_offset, at, piece.size_bytes))
            at += piece.size_bytes
        await transport.read(region, staged, pinned, deadline_s)
        for piece, there in zip(batch, staged, strict=True):
            source = pinned[there.target_offset : there.target_offset + there.size_bytes]
            stream.to_device(piece.target_offset, source)
        await in_thread(stream.wait)


Memory = memoryview | DeviceMemory
"""A slice is a view of the host's memory, a copy of a device's."""


def host_view(memory: Memory) -> memoryview:
    """Return memory of the host, to be written to.

    Raises
    ------
    ValueError
        If it is a device's.
    """
    if isinstance(memory, DeviceMemory):
        raise ValueError("a device's memory can't be written to in place")
    return memory


async def fill(
    memory: Memory,
    transport: Transport,
    region: Region,
    pieces: Sequence[Piece],
    deadline_s: float,
) -> None:
    """Bring pieces of a peer's region into memory of either kind; raises as `Transport.read`."""
    if isinstance(memory, DeviceMemory):
        await memory.fill(transport, region, pieces, deadline_s)
    else:
        await transport.read(region, pieces, memory, deadline_s)
