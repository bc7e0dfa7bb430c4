"""Residency events in the shapes of vLLM's and SGLang's KV events, kept for who asks later.

A batch is msgpack: `[seconds since 1970, [event, ...], nil]`, and each event a map that names its
type. `tenant` and `never_used` are ours. A pool knows hashes and no tokens: `token_ids` is empty.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter

import msgspec

from replication.resident import Resident

MOST_BATCHES = 10_000
MOST_BYTES = 32 << 20
"""Kept at most; who asks for older ones gets a snapshot."""
ANSWER_BYTES = 4 << 20
"""About as much is answered at once; who wants more asks again."""


class BlockStored(msgspec.Struct, frozen=True, tag=True):
    """Blocks that follow each other are resident now, the first of them after `parent_block_hash`.

    `medium` is where: GPU, CPU or DISK.
    """

    block_hashes: tuple[int, ...]
    parent_block_hash: int | None
    token_ids: tuple[int, ...]
    block_size: int
    medium: str
    tenant: str


class BlockRemoved(msgspec.Struct, frozen=True, tag=True):
    """Blocks are resident no more; `never_used` of them were copied here for nobody."""

    block_hashes: tuple[int, ...]
    medium: str
    tenant: str
    never_used: int


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True):
    """Nothing is resident but what comes after this."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Events that happened together, at `ts` in seconds since 1970."""

    ts: float
    events: tuple[Event, ...]
    data_parallel_rank: int | None = None


class Events(msgspec.Struct, frozen=True):
    """Batches with their sequence numbers, which begin at 0 in each epoch; `following` is next.

    A `snapshot` is one batch that stands for all until then: what is resident, after a clearing.
    """

    epoch: int
    following: int
    snapshot: bool
    batches: tuple[tuple[int, Batch], ...]


class EventLog:
    """Notes what happens in one pool, and tells it to whoever is behind, however far.

    Parameters
    ----------
    residents
        Yields what is resident now.
    epoch
        The pool's. Sequence numbers begin anew with it.
    block_tokens
        Tokens in a block, 0 if that isn't known.
    wall_clock
        Returns seconds since 1970.
    medium
        Where the pool's memory is: GPU, CPU or DISK.
    """

    def __init__(
        self,
        residents: Callable[[], Iterable[Resident]],
        *,
        epoch: int,
        block_tokens: int,
        wall_clock: Callable[[], float],
        medium: str = "CPU",
    ) -> None:
        self._residents = residents
        self._epoch = epoch
        self._block_tokens = block_tokens
        self._wall_clock = wall_clock
        self._medium = medium
        self._kept: deque[tuple[int, Batch, int]] = deque()
        self._kept_bytes = 0
        self._following = 0
        self._news = asyncio.Event()
        self._note((AllBlocksCleared(),))

    def stored(self, residents: Sequence[Resident]) -> None:
        """Note blocks that became visible together, as one batch."""
        self._note(tuple(self._runs(residents)))

    def removed(self, resident: Resident) -> None:
        """Note a block that is visible no more."""
        never_used = int(resident.copied and not resident.leased)
        self._note((BlockRemoved((resident.block,), self._medium, resident.tenant, never_used),))

    def since(self, epoch: int, number: int) -> Events:
        """Return the batches from `number` on, or what stands for them if they are gone.

        An unknown epoch, a number that isn't kept any more and one that is yet to come all get a
        snapshot.
        """
        oldest = self._kept[0][0]
        if epoch != self._epoch or not oldest <= number <= self._following:
            return self._snapshot()
        found, size_bytes = list[tuple[int, Batch]](), 0
        for kept, batch, batch_bytes in islice(self._kept, number - oldest, None):
            size_bytes += batch_bytes
            if found and size_bytes > ANSWER_BYTES:
                break
            found.append((kept, batch))
        return Events(self._epoch, number + len(found), False, tuple(found))

    async def news(self, epoch: int, number: int) -> None:
        """Return once `since` has something to tell."""
        while epoch == self._epoch and number == self._following:
            await self._news.wait()

    def _snapshot(self) -> Events:
        events: tuple[Event, ...] = (AllBlocksCleared(), *self._runs(self._residents()))
        batch = Batch(self._wall_clock(), events)
        return Events(self._epoch, self._following, True, ((self._following - 1, batch),))

    def _runs(self, residents: Iterable[Resident]) -> Iterator[BlockStored]:
        """Yield blocks that follow each other as one event."""
        for tenant, mine in groupby(residents, key=attrgetter("tenant")):
            run: list[Resident] = []
            for one in mine:
                if run and one.parent != run[-1].block:
                    yield self._stored(tenant, run)
                    run = []
                run.append(one)
            yield self._stored(tenant, run)

    def _stored(self, tenant: str, run: Sequence[Resident]) -> BlockStored:
        hashes = tuple(one.block for one in run)
        return BlockStored(hashes, run[0].parent, (), self._block_tokens, self._medium, tenant)

    def _note(self, events: tuple[Event, ...]) -> None:
        batch = Batch(self._wall_clock(), events)
        size_bytes = len(msgspec.msgpack.encode(batch))
        self._kept.append((self._following, batch, size_bytes))
        self._kept_bytes += size_bytes
        self._following += 1
        while len(self._kept) > 1 and (
            len(self._kept) > MOST_BATCHES or self._kept_bytes > MOST_BYTES
        ):
            self._kept_bytes -= self._kept.popleft()[2]
        self._news.set()
        self._news = asyncio.Event()
