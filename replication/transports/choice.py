"""Several transports as one: each read takes the best way that both ends have."""

import logging
import mmap
import os
from collections.abc import Mapping, Sequence
from errno import EACCES
from hashlib import blake2s
from pathlib import Path
from typing import Self

import msgspec

from replication.errors import TransportError
from replication.transports.base import Piece, Region, Transport
from replication.transports.pieces import check_target
from replication.transports.shm import ShmTransport
from replication.transports.tcp import TcpTransport
from replication.transports.verbs import VerbsTransport

KINDS = ("shm", "verbs", "tcp")
"""In the order of preference: one copy by this host's memory, then RDMA, then the kernel's TCP."""
MOST_PATHS = 256
"""Peers that are remembered by how they were read."""

logger = logging.getLogger(__name__)


class _Ways(msgspec.Struct, frozen=True):
    """A region's key: the owner's host, and by transport the owner's name there and its key."""

    host: str
    ways: dict[str, tuple[str, str]]


class AutoTransport:
    """Offers memory by every transport that works here, and reads by the best one.

    `notes` says in words what is offered and what isn't, `paths` over what each peer was read, and
    why. Made by `start`.
    """

    def __init__(self, parts: Mapping[str, Transport], host: str, notes: Sequence[str]) -> None:
        self._parts = dict(parts)
        self.digest_every = min(part.digest_every for part in parts.values())
        self._host = host
        self.notes = tuple(notes)
        self.paths: dict[str, str] = {}

    @classmethod
    async def start(
        cls, token: bytes, *, kind: str = "auto", host: str = "127.0.0.1", epoch: int = 1
    ) -> Self:
        """Return a transport of one kind, or of all that can be had.

        Parameters
        ----------
        token
            What peers over TCP and verbs have to know.
        kind
            `auto`, or one of `KINDS`.
        host
            Where TCP and verbs listen; the address that peers use.
        epoch
            A number that no earlier start here had.

        Raises
        ------
        TransportError
            If the kind that was asked for can't be had.
        ValueError
            If there is no such kind, or the token is empty.
        """
        if kind not in ("auto", *KINDS):
            raise ValueError(f"no transport is called {kind!r}; known are auto, {', '.join(KINDS)}")
        parts: dict[str, Transport] = {}
        notes: list[str] = []
        for one in KINDS if kind == "auto" else (kind,):
            try:
                parts[one] = await _start(one, token, host, epoch)
                notes.append(f"{one} is offered")
            except TransportError as failed:
                if kind != "auto":
                    raise
                notes.append(f"{one} is not offered: {failed}")
        return cls(parts, this_host(), notes)

    def allocate(self, size_bytes: int) -> memoryview:
        """Return zeroed memory that every part can register."""
        shm = self._parts.get("shm")
        if isinstance(shm, ShmTransport):
            return shm.allocate(size_bytes)
        return memoryview(mmap.mmap(-1, size_bytes))

    def register(self, memory: memoryview) -> Region:
        """Make `memory`, from `allocate`, readable in every way."""
        regions = {kind: part.register(memory) for kind, part in self._parts.items()}
        ways = {kind: (region.peer, region.key) for kind, region in regions.items()}
        key = msgspec.json.encode(_Ways(self._host, ways)).decode()
        last = list(regions.values())[-1]
        return Region(last.peer, last.epoch, key, memory.nbytes)

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        """Bring `pieces` by the way that `choose` takes."""
        check_target(pieces, into)
        kind, its = self.choose(region)
        await self._parts[kind].read(its, pieces, into, deadline_s)

    def choose(self, region: Region) -> tuple[str, Region]:
        """Return the kind of transport to read a peer's region by, and the region there.

        Raises
        ------
        TransportError
            If the region is none of an AutoTransport, or there is no way that both ends have.
        """
        try:
            offered = msgspec.json.decode(region.key, type=_Ways)
        except msgspec.DecodeError as error:
            raise TransportError(f"{region.peer} offers no such region", errno=EACCES) from error
        here = offered.host == self._host
        common = [kind for kind in KINDS if kind in offered.ways and kind in self._parts]
        for kind in common if here else [one for one in common if one != "shm"]:
            peer, key = offered.ways[kind]
            self._note(region.peer, kind, here)
            return kind, Region(peer, region.epoch, key, region.size_bytes)
        raise TransportError(
            f"no way to {region.peer}: it offers {', '.join(offered.ways)}, here is "
            f"{', '.join(self._parts)}" + ("" if here else ", and shm ends at the host")
        )

    async def aclose(self) -> None:
        """Close all parts. May be called twice."""
        for part in self._parts.values():
            await part.aclose()

    def _note(self, peer: str, kind: str, here: bool) -> None:
        where = "this host, under the same user" if here else "elsewhere"
        words = f"{peer} is read over {kind}: it is on {where}, and that is the best both ends have"
        if self.paths.get(peer) == words:
            return
        logger.info("%s", words)
        self.paths[peer] = words
        if len(self.paths) > MOST_PATHS:
            del self.paths[next(iter(self.paths))]


def this_host() -> str:
    """Return a name that is the same for all processes which can reach each other's memory.

    That is: the same boot of the same kernel, one PID namespace, one user.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    space = os.stat("/proc/self/ns/pid")
    told = b"%b %d %d %d" % (boot.strip(), space.st_dev, space.st_ino, os.geteuid())
    return blake2s(told, digest_size=16).hexdigest()


async def _start(kind: str, token: bytes, host: str, epoch: int) -> Transport:
    if kind == "shm":
        return ShmTransport(epoch)
    if kind == "verbs":
        return await VerbsTransport.start(token, host=host, epoch=epoch)
    return await TcpTransport.start(token, host=host, epoch=epoch)
