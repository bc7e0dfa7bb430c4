"""Whole prefixes, put together from what an agent's snapshot says of single blocks."""

from collections.abc import Iterator
from contextlib import suppress

from replication.errors import LeaseLost
from replication.events import BlockStored, Events


class Prefixes:
    """What was resident on an agent when it gave a snapshot."""

    def __init__(self, snapshot: Events) -> None:
        self._parents: dict[tuple[str, int], int | None] = {}
        for _, batch in snapshot.batches:
            for event in batch.events:
                if isinstance(event, BlockStored):
                    before = (event.parent_block_hash, *event.block_hashes)
                    for block, parent in zip(event.block_hashes, before, strict=False):
                        self._parents[event.tenant, block] = parent

    def whole(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield tenant and blocks of those that are no part of a longer one."""
        inner = {(tenant, parent) for (tenant, _), parent in self._parents.items()}
        for tenant, block in self._parents:
            if (tenant, block) not in inner:
                with suppress(LeaseLost):  # its head has gone before its tail
                    yield tenant, self.chain(tenant, block)

    def chain(self, tenant: str, block: int) -> tuple[int, ...]:
        """Return all blocks of the prefix that ends with `block`, the first one first.

        Raises
        ------
        LeaseLost
            If not all of them are resident.
        """
        chain: dict[int, None] = {}
        at: int | None = block
        while at is not None:
            if (tenant, at) not in self._parents or at in chain:
                raise LeaseLost(f"prefix {block} is not resident, or not as a whole")
            chain[at] = None
            at = self._parents[tenant, at]
        return tuple(reversed(chain))
