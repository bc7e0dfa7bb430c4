"""The seam at the network: one-sided reads from a peer's registered memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that a peer has registered, as it tells others of it.

    `key` is what the transport needs to reach it (an rkey, a file name, a number) and is good for
    `epoch` only: a peer that starts anew registers anew.
    """

    peer: str
    epoch: int
    key: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One stretch to be read: from `source_offset` in the peer's region to `target_offset`."""

    source_offset: int
    target_offset: int
    size_bytes: int


class Transport(Protocol):
    """Reads a peer's memory. Verbs, shared memory, TCP and the fake look the same from here."""

    @property
    def digest_every(self) -> int:
        """One block in so many has to have its digest compared, 1 for all.

        Where hardware, or nothing at all, carries the bytes, a sample finds what is broken. TCP's
        own checksum is weak.
        """
        ...

    def register(self, memory: memoryview) -> Region:
        """Make one's own `memory` readable by peers until `aclose`; return how to reach it."""
        ...

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        """Bring `pieces` of a peer's region into one's own memory; all are there on return.

        `deadline_s` is seconds from now. On an error any part of `into` that pieces name may have
        been written. However it ends, cancelled too, nothing writes to `into` afterwards: its
        slots are given to somebody else then.

        Raises
        ------
        TransportError
            If it can't; never an error of the library below. A key, an epoch or a stretch that
            the peer doesn't offer is one too.
        Refused
            If the peer doesn't talk to us: another version, another token.
        ValueError
            If a piece lies outside `into`. Nothing has been read then.
        """
        ...

    async def aclose(self) -> None:
        """Free connections and registrations. May be called twice."""
        ...
