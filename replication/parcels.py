"""The blocks of one copy: placed, dealt out in parcels, visible once all of them are sure."""

from collections import deque
from collections.abc import Callable

from replication.chunks import Parcel, parcels
from replication.errors import ReplicationError
from replication.plan import Move
from replication.store import BlockPool, Placement


class Parcels:
    """What is still to be brought of a move, for whoever brings it. Moves nothing itself.

    Parameters
    ----------
    move
        What is to be brought.
    pool
        Where to. Slots are reserved by `begin`, and given back by `end` unless all went well.
    chunk_bytes
        Bytes of one read.
    now_s
        Tells the pool's time, on which its own leases run.
    """

    def __init__(
        self, move: Move, pool: BlockPool, chunk_bytes: int, now_s: Callable[[], float]
    ) -> None:
        self.move = move
        self.pool = pool
        self.whole = False
        self.broken: ReplicationError | None = None
        self.ordered_bytes = 0
        self._chunk_bytes = chunk_bytes
        self._now_s = now_s
        self._placement: Placement | None = None
        self._todo: deque[Parcel] = deque()
        self._unsure = 0

    @property
    def moved_bytes(self) -> int:
        """Bytes that were brought and are visible."""
        if self._placement is None or not self.whole:
            return 0
        return len(self._placement.slots) * self.pool.layout.block_bytes

    def wants_more_than(self, hands: int) -> bool:
        """Return whether there is something to bring for one more than those who are at it."""
        if self._placement is not None:
            return bool(self._todo)
        missing = len(self.pool.missing(self.move.tenant, self.move.chain))
        expected = parcels(missing, self.pool.layout.block_bytes, self._chunk_bytes)
        return hands < max(1, len(expected))

    def begin(self) -> None:
        """Reserve slots for what is missing, the first time.

        Raises
        ------
        NoRoom, Busy
            If there are none to be had, for now: it is `broken` then.
        """
        if self._placement is not None:
            return
        try:
            self._placement = self.pool.place(
                self.move.tenant, self.move.chain, self.move.worth, self._now_s()
            )
        except ReplicationError as failed:
            self.broken = failed
            raise
        count = len(self._placement.hashes)
        found = parcels(count, self.pool.layout.block_bytes, self._chunk_bytes)
        self._todo.extend(found)
        self._unsure = len(found)
        if not found:
            self._commit()

    def take(self) -> Parcel | None:
        """Return a parcel that nobody else is bringing, None if there is none."""
        return self._todo.popleft() if self._todo else None

    def land(self, parcel: Parcel, upto_bytes: int) -> None:
        """Note that its blocks are there up to a byte, for those who follow."""
        for number in parcel.blocks:
            self.pool.land(self._placed, number, upto_bytes)

    def settle(self, parcel: Parcel) -> None:
        """Note that a parcel is there and right. With the last one all blocks become visible.

        Raises
        ------
        Recycled
            If a block that these follow was taken back meanwhile: it is `broken` then.
        """
        self._unsure -= 1
        if not self._unsure:
            self._commit()

    def give_back(self, parcel: Parcel) -> None:
        """Leave a parcel that one has taken to others."""
        self.land(parcel, 0)
        self._todo.appendleft(parcel)

    def blocks(self, parcel: Parcel) -> tuple[int, ...]:
        """Return the hashes of its blocks."""
        return self._placed.hashes[parcel.blocks.start : parcel.blocks.stop]

    def slots(self, parcel: Parcel) -> tuple[int, ...]:
        """Return where its blocks go."""
        return self._placed.slots[parcel.blocks.start : parcel.blocks.stop]

    def end(self) -> None:
        """Give all slots back unless it is whole. Nobody may be bringing anything any more."""
        if self._placement is not None:
            self.pool.abort(self._placement)

    @property
    def _placed(self) -> Placement:
        assert self._placement is not None, "not begun"
        return self._placement

    def _commit(self) -> None:
        try:
            for rank in self.pool.layout.ranks:
                self.pool.commit(self._placed, rank)
        except ReplicationError as failed:
            self.broken = failed
            raise
        self.whole = True
