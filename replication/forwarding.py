"""Handing blocks on while they are still being received: what the next in a chain asks."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from replication.errors import LeaseLost
from replication.lease import Lease
from replication.peer import LONGEST_LEASE_S, Offer
from replication.store import BlockPool
from replication.transports.base import Region

PATIENCE_S = 1.0
"""How long a forwarder may be silent: until it has begun to receive, and until it says how far."""


class Forwarder(Protocol):
    """A replica that is read from while it is filled. Its bytes are not vouched for.

    Whoever follows it compares them with a holder's digests, and asks that holder whether its
    generations still stand. So a forwarder can be wrong, and nothing wrong is ever visible.
    """

    async def follow(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        """Pin the blocks of a chain, whether they are there or on their way; no digests.

        Raises
        ------
        LeaseLost
            If it has neither, and hasn't begun within its patience.
        PeerGone
            If it can't be reached.
        """
        ...

    async def landed(self, lease: Lease, beyond_bytes: int) -> tuple[int, ...]:
        """Return how much of each block can be read, once that is more than `beyond_bytes` in all.

        After its patience it is returned in any case, so that silence means death.

        Raises
        ------
        LeaseLost, Recycled
            If the lease has ended, or a block was given up.
        PeerGone
            If it can't be reached.
        """
        ...

    async def verify(self, lease: Lease) -> None:
        """Return if no block of the lease has been given up; raises as a holder does."""
        ...

    async def release(self, lease: Lease) -> None:
        """End a lease. One that has ended already changes nothing."""
        ...


class PoolForwarder:
    """Hands on from a pool in this very process.

    Parameters
    ----------
    pool
        What is filled.
    regions
        The pool's memories, by rank, as the transport registered them.
    clock
        Returns seconds; leases run on it.
    patience_s
        How long a call waits for something to happen.
    """

    def __init__(
        self,
        pool: BlockPool,
        regions: Sequence[Region],
        clock: Callable[[], float],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._pool = pool
        self._regions = tuple(regions)
        self._clock = clock
        self._patience_s = patience_s

    async def follow(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        """Wait for the blocks to be placed, and pin them."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self._patience_s
        while True:
            now_s = self._clock()
            until_s = now_s + min(length_s, LONGEST_LEASE_S)
            try:
                lease = self._pool.follow(tenant, chain, until_s, now_s)
            except LeaseLost:
                if loop.time() >= give_up_s:
                    raise
                await self._change(give_up_s - loop.time())
            else:
                return Offer(lease, self._pool.layout, self._regions, ())

    async def landed(self, lease: Lease, beyond_bytes: int) -> tuple[int, ...]:
        """Wait for something to land."""
        loop = asyncio.get_running_loop()
        answer_s = loop.time() + self._patience_s
        while True:
            self._pool.check(lease, self._clock())
            landed = self._pool.landed(lease)
            left_s = answer_s - loop.time()
            if sum(landed) > beyond_bytes or left_s <= 0.0:
                return landed
            await self._change(left_s)

    async def verify(self, lease: Lease) -> None:
        """Look at the generations as they are now."""
        self._pool.check(lease, self._clock())

    async def release(self, lease: Lease) -> None:
        """End a lease."""
        self._pool.release(lease)

    async def _change(self, most_s: float) -> None:
        """Return when something has changed in the pool, or after `most_s`."""
        changed = asyncio.Event()
        with self._pool.watched(changed.set), suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await changed.wait()


class Following:
    """How far a forwarder has come with the blocks of a lease, as far as one has heard."""

    def __init__(self, forwarder: Forwarder, lease: Lease, chain: Sequence[int]) -> None:
        self._forwarder = forwarder
        self._lease = lease
        self._chain = tuple(chain)
        self._landed = dict.fromkeys(chain, 0)
        self._asking = asyncio.Lock()

    async def reach(self, blocks: Iterable[int], upto_bytes: int) -> None:
        """Return when all of `blocks` can be read up to a byte."""
        wanted = tuple(blocks)
        while not self._reached(wanted, upto_bytes):
            async with self._asking:
                if self._reached(wanted, upto_bytes):
                    return
                known_bytes = sum(self._landed.values())
                landed = await self._forwarder.landed(self._lease, known_bytes)
                self._landed = dict(zip(self._chain, landed, strict=True))

    def _reached(self, blocks: Iterable[int], upto_bytes: int) -> bool:
        return all(self._landed[block] >= upto_bytes for block in blocks)
