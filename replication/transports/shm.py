"""Reads a process on the same host: its memory is mapped here, and copied once."""

import asyncio
import fcntl
import mmap
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from errno import EACCES

import numpy as np

from replication.errors import PeerGone, TransportError
from replication.threads import in_thread
from replication.transports.base import Piece, Region
from replication.transports.deadline import within
from replication.transports.pieces import batches, check_target, total_bytes

SLICE_BYTES = 16 << 20
"""Bytes that a thread copies before anybody looks whether the peer still offers them."""
INLINE_BYTES = 128 << 10
"""Up to here a thread costs more than the copy."""
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""A mapping that its owner could shrink would kill its readers with SIGBUS."""
KEY = re.compile(r"(\d+):(\d+):([0-9a-f]{16})")


class ShmTransport:
    """Reads memory that a peer on this host allocated here, under the same user.

    Memory is a sealed memfd, reached through the peer's folder in /proc: it is gone with the
    process, however that ends, and leaves nothing in /dev/shm. Its name carries epoch and key, and
    is looked at before and after each copy.
    """

    digest_every = 16

    def __init__(self, epoch: int = 1) -> None:
        self._epoch = epoch
        self._own: dict[int, tuple[Region, memoryview]] = {}
        self._peers: dict[Region, mmap.mmap] = {}
        self._closed = False

    def allocate(self, size_bytes: int) -> memoryview:
        """Return zeroed memory that `register` can offer to others.

        Raises
        ------
        TransportError
            If the kernel gives none.
        ValueError
            If it is to have no bytes.
        """
        secret, process = secrets.token_hex(8), os.getpid()
        try:
            descriptor, memory = _allocate(_name(self._epoch, secret), size_bytes)
        except OSError as failed:
            raise TransportError(f"no shared memory: {failed}", errno=failed.errno) from failed
        key = f"{process}:{descriptor}:{secret}"
        region = Region(f"process {process}", self._epoch, key, size_bytes)
        self._own[descriptor] = (region, memory)
        return memory

    def register(self, memory: memoryview) -> Region:
        """Return how to reach memory from `allocate`.

        Raises
        ------
        ValueError
            If it is any other memory: that can't be mapped elsewhere.
        """
        for region, owned in self._own.values():
            if owned is memory:
                return region
        raise ValueError("only memory that this transport allocated can be shared")

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        """Copy `pieces` out of the peer's mapping, a slice at a time."""
        target = check_target(pieces, into)
        for piece in pieces:
            if piece.source_offset + piece.size_bytes > region.size_bytes:
                raise TransportError(f"{piece} ends outside of the region", errno=EACCES)
        async with within(deadline_s):
            for batch in batches(pieces, SLICE_BYTES):
                source = memoryview(self._mapped(region))
                if total_bytes(batch) <= INLINE_BYTES:
                    _copy(source, batch, target)
                    await asyncio.sleep(0)
                else:
                    await in_thread(_copy, source, batch, target)
                self._mapped(region)

    async def aclose(self) -> None:
        """Make one's memory unreachable and forget that of others.

        One's own stays mapped for as long as somebody here has a view of it.
        """
        self._closed = True
        for descriptor in self._own:
            os.close(descriptor)
        self._own.clear()
        self._peers.clear()  # each is unmapped once no thread copies from it

    def _mapped(self, region: Region) -> mmap.mmap:
        """Return the mapping of a region that its owner offers at this moment."""
        if self._closed:
            raise PeerGone("this end is closed")
        key = KEY.fullmatch(region.key)
        if key is None:
            raise TransportError(f"{region.peer} offers no such region", errno=EACCES)
        path = f"/proc/{key[1]}/fd/{key[2]}"
        found = _link(path, region)
        if found != f"/memfd:{_name(region.epoch, key[3])} (deleted)":
            self._peers.pop(region, None)
            if found.startswith("/memfd:btb-"):
                raise TransportError(f"{region.peer} offers no such region", errno=EACCES)
            raise PeerGone(f"{region.peer} is gone, or doesn't offer the region any more")
        if region not in self._peers:
            self._peers[region] = _map(path, region)
        return self._peers[region]


def _copy(source: memoryview, pieces: Sequence[Piece], target: memoryview) -> None:
    """Copy pieces, a run in one call: before each a thread waits for the interpreter's lock."""
    for run in _runs(pieces):
        first, shape = run[0], (len(run), run[0].size_bytes)
        step, into_step = _steps(run, 1) if len(run) > 1 else shape
        here = np.ndarray(shape, np.uint8, source, first.source_offset, (step, 1))
        there = np.ndarray(shape, np.uint8, target, first.target_offset, (into_step, 1))
        there[:] = here


def _runs(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    """Yield pieces of one size at even steps together, as a block's layers are."""
    first = 0
    for number in range(1, len(pieces) + 1):
        if (
            number < len(pieces)
            and pieces[number].size_bytes == pieces[first].size_bytes
            and _steps(pieces, number) == _steps(pieces, first + 1)
        ):
            continue
        yield pieces[first:number]
        first = number


def _steps(pieces: Sequence[Piece], number: int) -> tuple[int, int]:
    """Return how far a piece is from the one before it, at the source and at the target."""
    piece, before = pieces[number], pieces[number - 1]
    return piece.source_offset - before.source_offset, piece.target_offset - before.target_offset


def _name(epoch: int, secret: str) -> str:
    return f"btb-{epoch}-{secret}"


def _allocate(name: str, size_bytes: int) -> tuple[int, memoryview]:
    """Return a sealed memfd, and all of it mapped."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        return descriptor, memoryview(mmap.mmap(descriptor, size_bytes))
    except BaseException:
        os.close(descriptor)
        raise


def _link(path: str, region: Region) -> str:
    """Return what a peer has under a descriptor; empty if nothing, or if it is no more."""
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""
    except OSError as failed:
        raise TransportError(f"{region.peer}: {failed}", errno=failed.errno) from failed


def _map(path: str, region: Region) -> mmap.mmap:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as failed:
        raise TransportError(f"{region.peer}: {failed}", errno=failed.errno) from failed
    try:
        sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS == SEALS
        if not sealed or os.fstat(descriptor).st_size != region.size_bytes:
            raise TransportError(f"{region.peer} offers no such region", errno=EACCES)
        return mmap.mmap(descriptor, region.size_bytes, prot=mmap.PROT_READ)
    except OSError as failed:
        raise TransportError(f"{region.peer}: {failed}", errno=failed.errno) from failed
    finally:
        os.close(descriptor)
