"""A replica's disk as a holder of blocks: a directory with one file for each."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from errno import EACCES
from pathlib import Path

from replication.disk_files import (
    ENDING,
    UNFINISHED,
    VERSION,
    BlockHead,
    check_block,
    cut_of,
    file_name,
    parts_by_slot,
    read_head,
    read_parts,
    write_block,
)
from replication.errors import Corrupted, LeaseLost, NoRoom, ReplicationError, TransportError
from replication.layout import Layout
from replication.lease import Lease, Leases
from replication.peer import LONGEST_LEASE_S, Offer
from replication.store import BlockPool
from replication.threads import in_thread
from replication.transports.base import Piece, Region
from replication.transports.deadline import within
from replication.transports.pieces import check_target

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Kept:
    head: BlockHead
    path: Path
    slot: int
    read: bool = False
    sound: bool = False


class DiskTier:
    """Blocks in files. As a holder it leases them, as a transport it reads them into memory.

    A file that is torn, or has other bytes than were written, is treated as absent: it is deleted,
    logged, and counted in `damaged`. Others must not write to the directory.

    Parameters
    ----------
    name
        What it goes by as a holder.
    folder
        Where the files are, those of each layout apart; those of an earlier start are found again.
    layer_bytes
        How blocks are cut, as in `Layout`.
    most_blocks
        What there is room for. The longest unused that nobody leases make room.
    clock
        Returns seconds; leases run on it.

    Raises
    ------
    OSError
        If the directory can't be made or read.
    """

    digest_every = 1

    def __init__(
        self,
        name: str,
        folder: Path,
        layer_bytes: tuple[tuple[int, ...], ...],
        most_blocks: int,
        clock: Callable[[], float],
    ) -> None:
        self.damaged = 0
        self._name = name
        self._layout = Layout(most_blocks, layer_bytes)
        self._folder = folder / cut_of(self._layout)
        self._clock = clock
        self._leases = Leases(epoch=1)
        self._kept: OrderedDict[tuple[str, int], _Kept] = OrderedDict()
        self._slots: dict[int, _Kept] = {}
        self._free = list(reversed(range(most_blocks)))
        self._generations = [0] * most_blocks
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._scan()

    def holds(self, tenant: str, chain: Sequence[int]) -> int:
        """Return how many leading blocks there are."""
        held = 0
        while held < len(chain) and (tenant, chain[held]) in self._kept:
            held += 1
        return held

    async def keep(self, pool: BlockPool, tenant: str, chain: Sequence[int]) -> int:
        """Write those blocks of a pool's chain that aren't here yet; return how many there were.

        Raises
        ------
        LeaseLost, Recycled
            If the pool hasn't got all of them, or one was taken back meanwhile.
        NoRoom
            If what is leased leaves no room.
        TransportError
            If the disk doesn't take them.
        """
        now_s = self._clock()
        lease = pool.lease(tenant, chain, now_s + LONGEST_LEASE_S, now_s)
        written = 0
        try:
            for block, slot in zip(chain, lease.slots, strict=True):
                if (tenant, block) not in self._kept:
                    await self._write(pool, lease, slot, (tenant, block))
                    written += 1
        finally:
            pool.release(lease)
        return written

    async def lease(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        """Pin files; what they say of themselves is the digests."""
        self._leases.expire(self._clock())
        kept: list[_Kept] = []
        for block in chain:
            one = self._kept.get((tenant, block))
            if one is None or not self._still_there(one):
                raise LeaseLost(f"{len(kept)} of {len(chain)} blocks are on disk")
            self._kept.move_to_end((tenant, block))
            kept.append(one)
        slots = [one.slot for one in kept]
        until_s = self._clock() + min(length_s, LONGEST_LEASE_S)
        generations = [self._generations[slot] for slot in slots]
        lease = self._leases.grant(slots, generations, until_s)
        ranks = self._layout.ranks
        regions = [
            Region(self._name, 1, str(rank), self._layout.region_bytes(rank)) for rank in ranks
        ]
        digests = tuple(tuple(one.head.digests[rank] for one in kept) for rank in ranks)
        return Offer(lease, self._layout, tuple(regions), digests)

    async def verify(self, lease: Lease) -> None:
        """Check the files of a lease that were read and had not been checked yet."""
        self._leases.check(lease, self._clock())
        for slot, generation in zip(lease.slots, lease.generations, strict=True):
            one = self._slots.get(slot)
            if one is None or self._generations[slot] != generation:
                raise LeaseLost(f"{self._name} has given a block up")
            if one.read and not one.sound:
                try:
                    await in_thread(check_block, one.path, one.head, self._layout)
                except (Corrupted, OSError) as failed:
                    self._discard(one, failed)
                    raise Corrupted(str(failed)) from failed
                one.sound = True

    async def release(self, lease: Lease) -> None:
        """End a lease."""
        self._leases.release(lease)

    def register(self, memory: memoryview) -> Region:
        """Refuse: what is here is in files.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError("a disk offers no memory")

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        """Bring `pieces`, each file in one go, in a thread."""
        target = check_target(pieces, into)
        if region.peer != self._name or not region.key.isdecimal():
            raise TransportError(f"{self._name} has no region {region}", errno=EACCES)
        wanted = parts_by_slot(self._layout, int(region.key), pieces, target)
        async with within(deadline_s):
            for slot, parts in wanted.items():
                one = self._slots.get(slot)
                if one is None:
                    raise TransportError(f"{self._name} has no block {slot}", errno=EACCES)
                one.read = True
                try:
                    await in_thread(read_parts, one.path, parts)
                except (OSError, ReplicationError) as failed:
                    self._discard(one, failed)
                    number = failed.errno if isinstance(failed, OSError) else None
                    raise TransportError(str(failed), errno=number) from failed

    async def aclose(self) -> None:
        """Do nothing: no file is kept open."""

    def _scan(self) -> None:
        for path in sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime):
            if path.suffix == UNFINISHED:
                path.unlink()
            if path.suffix != ENDING:
                continue
            try:
                head = read_head(path, self._layout)
            except (Corrupted, OSError) as failed:
                self._report(path, failed)
                continue
            self._make_room()
            self._take_in(head, path)

    async def _write(self, pool: BlockPool, lease: Lease, slot: int, key: tuple[str, int]) -> None:
        ranks = pool.layout.ranks
        if pool.layout.layer_bytes != self._layout.layer_bytes:
            raise ValueError("the pool's blocks are cut in another way than the disk's")
        self._make_room()
        views = [
            pool.memories[rank][offset : offset + size_bytes]
            for rank in ranks
            for offset, size_bytes in pool.layout.stretches(rank, slot)
        ]
        path = self._folder / file_name(*key)
        digests = await in_thread(lambda: tuple(pool.digest(slot, rank) for rank in ranks))
        head = BlockHead(VERSION, *key, cut_of(self._layout), digests)
        try:
            await in_thread(write_block, path, head, views)
        except OSError as failed:
            raise TransportError(f"{path}: {failed}", errno=failed.errno) from failed
        try:
            pool.check(lease, self._clock())
        except ReplicationError:
            path.unlink()
            raise
        self._make_room()
        self._take_in(head, path)

    def _take_in(self, head: BlockHead, path: Path) -> None:
        key = (head.tenant, head.block)
        if key in self._kept:
            return
        slot = self._free.pop()
        self._kept[key] = self._slots[slot] = _Kept(head, path, slot)

    def _make_room(self) -> None:
        self._leases.expire(self._clock())
        if self._free:
            return
        for one in self._kept.values():
            if not self._leases.pinned(one.slot, self._generations[one.slot]):
                self._forget(one)
                one.path.unlink(missing_ok=True)
                return
        raise NoRoom(f"all blocks of {self._name} are leased")

    def _still_there(self, one: _Kept) -> bool:
        try:
            read_head(one.path, self._layout)
        except (Corrupted, OSError) as failed:
            self._discard(one, failed)
            return False
        return True

    def _discard(self, one: _Kept, why: Exception) -> None:
        if self._slots.get(one.slot) is one:
            self._forget(one)
            self._report(one.path, why)

    def _report(self, path: Path, why: Exception) -> None:
        self.damaged += 1
        logger.warning("%s is treated as absent: %s", path, why)
        path.unlink(missing_ok=True)

    def _forget(self, one: _Kept) -> None:
        del self._kept[one.head.tenant, one.head.block]
        del self._slots[one.slot]
        self._generations[one.slot] += 1
        self._free.append(one.slot)
