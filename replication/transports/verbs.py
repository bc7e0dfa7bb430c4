"""Reads a peer's memory by RDMA: one-sided, so the peer's processor has no part in it."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EACCES
from re import compile as compile_pattern
from typing import Self

import numpy as np

from replication.errors import PeerGone, TransportError
from replication.transports.base import Piece, Region
from replication.transports.deadline import within
from replication.transports.pieces import check_target
from replication.transports.scatter import scatter_reads
from replication.transports.tcp_frames import socket_errors
from replication.transports.verbs_device import Registration, VerbsDevice, device_names
from replication.transports.verbs_link import VerbsLink
from replication.transports.verbs_server import VerbsServer
from replication.transports.verbs_settings import VerbsSettings

KEY = compile_pattern(r"([0-9a-f]{1,16}):([0-9a-f]{1,8})")
"""An address in the peer's process and the key to it, as hex."""


class VerbsTransport:
    """Reads host memory of peers over RoCE. Queue pairs are introduced to each other over TCP.

    Who knows the token may read all that is registered here. KV is not encrypted on its way.
    There is one connection to each peer; reads from the same peer come one after another. Made by
    `start`.
    """

    digest_every = 16

    def __init__(
        self, listener: socket.socket, device: VerbsDevice, token: bytes, epoch: int
    ) -> None:
        self._device = device
        self._token = token
        self._epoch = epoch
        self._server = VerbsServer(listener, device, token, epoch)
        self._own: dict[tuple[int, int], Registration] = {}
        self._kept: list[memoryview] = []
        self._links: dict[tuple[str, int], VerbsLink] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closed = False

    @classmethod
    async def start(
        cls,
        token: bytes,
        *,
        device: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        epoch: int = 1,
        settings: VerbsSettings | None = None,
    ) -> Self:
        """Return a transport that peers can connect to.

        Parameters
        ----------
        token
            What peers have to know; the same at both ends.
        device
            Name of an RDMA device, None for the first.
        host, port
            Where to listen for introductions, over TCP; port 0 for any that is free.
        epoch
            A number that no earlier start at this address had.
        settings
            How connections are driven.

        Raises
        ------
        ValueError
            If the token is empty.
        TransportError
            If there is no such device, its port isn't up, or the address can't be had.
        """
        if not token:
            raise ValueError("a token is needed")
        names = device_names() if device is None else [device]
        if not names:
            raise TransportError("there is no RDMA device here")
        opened = VerbsDevice(names[0], settings or VerbsSettings())
        try:
            with socket_errors(f"{host}:{port}"):
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                listener = socket.create_server((host, port), family=family)
        except BaseException:
            opened.close()
            raise
        listener.setblocking(False)
        return cls(listener, opened, token, epoch)

    def register(self, memory: memoryview) -> Region:
        """Pin `memory` and make it readable; the same memory again is not pinned twice.

        It is pinned as a whole, which takes about 10 ms a MiB under emulation and far less on
        hardware: do it once, for a whole pool.

        Raises
        ------
        TransportError
            If the device doesn't take it; ENOMEM hints at the limit of locked memory.
        """
        self._check_open()
        where = (_address(memory), memory.nbytes)
        if where not in self._own:
            self._own[where] = self._device.register(
                *where, readable=True, writable=not memory.readonly
            )
            self._kept.append(memoryview(memory))  # it must not be freed while it is offered
        key = f"{where[0]:x}:{self._own[where].remote_key:x}"
        return Region(self._server.address, self._epoch, key, memory.nbytes)

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        """Bring `pieces` of a peer's region into one's own memory; all are there on return.

        `into` is best part of what was registered; other memory is pinned for this read only. On
        any failure the connection is given up, so that nothing arrives late.
        """
        target = check_target(pieces, into)
        if target.readonly:
            raise ValueError("what is read into has to be writable")
        source = _source(region, pieces)
        self._check_open()
        requests = list(
            scatter_reads(
                pieces, chunk_bytes=self._device.chunk_bytes, max_spans=self._device.max_spans
            )
        )
        if not requests:
            return
        async with within(deadline_s), self._turns[region.peer]:
            self._check_open()
            link = await self._link(region)
            # Memory is let go after the link, which a failure has closed by then.
            with self._pinned(target) as pinned:
                await link.read(requests, source, _address(target), pinned)

    async def aclose(self) -> None:
        """Free connections, registrations and the device. May be called twice."""
        if self._closed:
            return
        self._closed = True
        for link in self._links.values():
            link.close()
        await self._server.aclose()
        for registration in self._own.values():
            registration.close()
        self._kept.clear()
        self._device.close()

    async def _link(self, region: Region) -> VerbsLink:
        """Return the link to a region's peer, made anew if there is none that works."""
        which = (region.peer, region.epoch)
        link = self._links.get(which)
        if link is None or not link.usable:
            made = await VerbsLink.connect(self._device, *which, self._token)
            if self._closed:
                made.close()
            link = self._links[which] = made
        return link

    @contextmanager
    def _pinned(self, target: memoryview) -> Iterator[Registration]:
        """Give the registration that covers `target`, made for now if there is none."""
        begin = _address(target)
        for known in self._own.values():
            if known.address <= begin and begin + target.nbytes <= known.address + known.size_bytes:
                yield known
                return
        made = self._device.register(begin, target.nbytes, readable=False, writable=True)
        try:
            yield made
        finally:
            made.close()

    def _check_open(self) -> None:
        if self._closed:
            raise PeerGone("this end is closed")


def _address(memory: memoryview) -> int:
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


def _source(region: Region, pieces: Sequence[Piece]) -> tuple[int, int]:
    """Return address and key of a region that has all of `pieces`."""
    key = KEY.fullmatch(region.key)
    if key is None:
        raise TransportError(f"{region.peer} offers no such region", errno=EACCES)
    for piece in pieces:
        if piece.source_offset + piece.size_bytes > region.size_bytes:
            raise TransportError(f"{piece} ends outside of the region", errno=EACCES)
    return int(key[1], 16), int(key[2], 16)
