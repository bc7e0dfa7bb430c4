"""The control channel between the two ends of a copy: what the target asks a holder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from replication.digests import digests
from replication.layout import Layout
from replication.lease import Lease
from replication.store import BlockPool
from replication.transports.base import Region

LONGEST_LEASE_S = 60.0
"""A holder keeps blocks for no longer, whatever it is asked: a target may never come back."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Where leased blocks can be read, and what they have to be like once read.

    `regions` and `digests` are by rank; within a rank a digest a block, in the lease's order. A
    block whose digest is None is checked by its generation alone.
    """

    lease: Lease
    layout: Layout
    regions: tuple[Region, ...]
    digests: tuple[tuple[int | None, ...], ...]


class Holder(Protocol):
    """A replica that can be asked for blocks. Its answers come over whatever channel there is."""

    async def lease(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        """Pin all blocks of a chain for `length_s`, or as long as the holder grants.

        Raises
        ------
        LeaseLost
            If it doesn't hold all of them for this tenant.
        Refused
            If it doesn't talk to us.
        PeerGone
            If it can't be reached.
        """
        ...

    async def verify(self, lease: Lease) -> None:
        """Return if all that was read under `lease` before this call was what it promised.

        Raises
        ------
        LeaseLost
            If the lease has ended, or the holder has started anew.
        Recycled
            If a block was taken back meanwhile.
        PeerGone
            If it can't be reached.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """End a lease. One that has ended already changes nothing."""
        ...


class PoolHolder:
    """Answers for a pool in this very process.

    Parameters
    ----------
    pool
        What it holds.
    regions
        The pool's memories, by rank, as the transport registered them.
    clock
        Returns seconds; leases run on it.
    digest_every
        One block in so many has its digest worked out and told, another one with each lease; 1 for
        all. `Transport.digest_every` is what the way to this pool needs.

    Raises
    ------
    ValueError
        If `digest_every` is less than 1.
    """

    def __init__(
        self,
        pool: BlockPool,
        regions: Sequence[Region],
        clock: Callable[[], float],
        digest_every: int = 1,
    ) -> None:
        if digest_every < 1:
            raise ValueError(f"digest_every must be at least 1, got {digest_every}")
        self._pool = pool
        self._regions = tuple(regions)
        self._clock = clock
        self._digest_every = digest_every

    async def lease(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        """Pin the blocks and work out their digests, once for each block."""
        now_s = self._clock()
        until_s = now_s + min(length_s, LONGEST_LEASE_S)
        lease = self._pool.lease(tenant, chain, until_s, now_s)
        ranks = self._pool.layout.ranks
        by_block: list[tuple[int | None, ...]] = [(None,) * len(ranks)] * len(lease.slots)
        sampled = range(lease.number % self._digest_every, len(lease.slots), self._digest_every)
        try:
            found = digests(self._pool, [lease.slots[number] for number in sampled])
            for number in sampled:
                by_block[number] = await anext(found)
                self._pool.check(lease, self._clock())
        except BaseException:
            self._pool.release(lease)
            raise
        by_rank = tuple(tuple(one[rank] for one in by_block) for rank in ranks)
        return Offer(lease, self._pool.layout, self._regions, by_rank)

    async def verify(self, lease: Lease) -> None:
        """Look at the generations as they are now."""
        self._pool.check(lease, self._clock())

    async def release(self, lease: Lease) -> None:
        """End a lease."""
        self._pool.release(lease)
