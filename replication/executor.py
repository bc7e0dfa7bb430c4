"""Carries out a plan, each move whole or not at all."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from replication.attempt import Giver, Pace
from replication.budget import Link
from replication.errors import Cancelled, PeerGone, ReplicationError
from replication.forwarding import Forwarder
from replication.pacer import Pacer
from replication.parcels import Parcels
from replication.peer import Holder
from replication.plan import Move
from replication.result import Result
from replication.striping import Striping
from replication.target import Target
from replication.transports.deadline import within

CHUNK_BYTES = 16 << 20
"""Long enough that a round trip is small beside it, short enough to give way soon."""
HAND_ON = 32
"""In so many steps a copy is handed on at least: the next in a chain is behind by one of them."""
LEAST_CHUNK_BYTES = 256 << 10
"""Smaller ones would wait for round trips."""

logger = logging.getLogger(__name__)


class Executor:
    """Moves prefixes into pools, those that save most for each byte first.

    A block is brought to a target once at a time: a move that shares blocks with one under way
    waits for it and brings what is still missing then. Where links have a rate, a worthier move
    goes first from the next chunk on.

    Parameters
    ----------
    targets, holders
        By replica: where copies may go, and who may be asked for them.
    forwarders
        By replica: where bytes may come from that are on their way there themselves.
    clock
        The clock that deadlines, and the targets' leases, are on; returns seconds.
    rates_bytes_s
        What copies may take of each replica's links, in bytes a second; no limit where absent.
    chunk_bytes
        Bytes read between two looks at who goes first.
    window
        Chunks of a copy that are under way from one holder at once.
    stripes
        Holders that one copy is read from at once, where each has at least a chunk to give.
    lease_s
        How long a holder is asked to keep blocks, and the most that one try takes.

    Raises
    ------
    ValueError
        If a rate, `chunk_bytes`, `window` or `stripes` isn't positive.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        holders: Mapping[str, Holder],
        *,
        clock: Callable[[], float],
        forwarders: Mapping[str, Forwarder] | None = None,
        rates_bytes_s: Mapping[Link, float] | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        window: int = 4,
        stripes: int = 4,
        lease_s: float = 30.0,
    ) -> None:
        counts = {"chunk_bytes": chunk_bytes, "window": window, "stripes": stripes}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        self._targets = targets
        self._holders = holders
        self._forwarders = {} if forwarders is None else forwarders
        self._clock = clock
        self._pacer = Pacer(rates_bytes_s or {})
        self._chunk_bytes = chunk_bytes
        self._window = window
        self._stripes = stripes
        self._lease_s = lease_s
        self._tasks: dict[asyncio.Task[Result], Move] = {}
        self._flights: dict[tuple[str, str, int], asyncio.Future[None]] = {}

    async def run(self, plan: Iterable[Move]) -> list[Result]:
        """Carry out `plan` and return what came of each move, in its order.

        Cancelling this calls all of its moves off, and waits until none writes any more.
        """
        tasks = [(asyncio.create_task(self._carry_out(move)), move) for move in plan]
        for task, move in tasks:
            self._tasks[task] = move
            task.add_done_callback(self._tasks.pop)
        await asyncio.gather(*(task for task, _ in tasks), return_exceptions=True)
        return [_outcome(task, move) for task, move in tasks]

    def cancel(self, target: str, tenant: str, block: int) -> int:
        """Call off the moves of the prefix that ends with `block`; return how many there were."""
        found = [task for task, move in self._tasks.items() if move.key == (target, tenant, block)]
        for task in found:
            task.cancel()
        return len(found)

    async def aclose(self) -> None:
        """Call all moves off and wait until none writes any more. May be called twice."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, move: Move) -> Result:
        started_s = self._clock()
        if move.target not in self._targets:
            return Result(move, 0, 0, 0.0, "", 0, PeerGone(f"{move.target} is not known here"))
        target = self._targets[move.target]
        copy = Parcels(move, target.pool, self._chunk_of(move), self._clock)
        striping = Striping(copy, self._pace(move), self._stripes if move.striped else 1)
        error: ReplicationError | None = None
        try:
            async with within(move.deadline_s - started_s), self._alone(move):
                if target.pool.missing(move.tenant, move.chain):
                    await striping.run(self._givers(move, target))
        except ReplicationError as failed:
            error = failed
        except asyncio.CancelledError:
            error = Cancelled("called off before it was whole")
        result = Result(
            move,
            moved_bytes=copy.moved_bytes,
            wasted_bytes=copy.ordered_bytes - copy.moved_bytes,
            took_s=self._clock() - started_s,
            path=_path(move, striping.path),
            retries=striping.retries,
            error=None if copy.whole else error,
        )
        logger.info("%s", result)
        return result

    def _chunk_of(self, move: Move) -> int:
        """Return how much of a move is read at once: less where others wait for it."""
        if move.striped:
            return self._chunk_bytes
        step_bytes = move.size_bytes // (HAND_ON * self._window)
        return min(self._chunk_bytes, max(LEAST_CHUNK_BYTES, step_bytes))

    def _givers(self, move: Move, target: Target) -> list[Giver]:
        """Return whom to turn to, the first first; by way of a forwarder before without."""
        givers = []
        for name in move.holders:
            if name not in self._holders:
                continue
            holder = self._holders[name]
            if move.via in self._forwarders:
                transport = target.transport_to(move.via)
                forwarder = self._forwarders[move.via]
                givers.append(Giver(name, holder, transport, move.via, forwarder))
            givers.append(Giver(name, holder, target.transport_to(name)))
        return givers

    @asynccontextmanager
    async def _alone(self, move: Move) -> AsyncIterator[None]:
        """Keep the blocks that a move has to bring to itself, once nobody else brings them."""
        pool = self._targets[move.target].pool
        whole = [(move.target, move.tenant, block) for block in move.chain]
        while ahead := {self._flights[key] for key in whole if key in self._flights}:
            await asyncio.wait(ahead)
        missing = pool.missing(move.tenant, move.chain)
        mine = [(move.target, move.tenant, block) for block in missing]
        landed = asyncio.get_running_loop().create_future()
        self._flights.update(dict.fromkeys(mine, landed))
        try:
            yield
        finally:
            for key in mine:
                del self._flights[key]
            landed.set_result(None)

    def _pace(self, move: Move) -> Pace:
        def turn(giver: Giver, size_bytes: int) -> Awaitable[None]:
            links = ((giver.sender, "out"), (move.target, "in"))
            return self._pacer.turn(links, size_bytes, move.worth)

        return Pace(
            window=self._window,
            lease_s=self._lease_s,
            turn=turn,
            left_s=lambda: move.deadline_s - self._clock(),
        )


def _path(move: Move, givers: Sequence[Giver]) -> str:
    if not givers:
        return ""
    names = dict.fromkeys(giver.path for giver in givers)
    transports = dict.fromkeys(type(giver.transport).__name__ for giver in givers)
    return f"{' + '.join(names)} -> {move.target} over {' + '.join(transports)}"


def _outcome(task: asyncio.Task[Result], move: Move) -> Result:
    """Return what came of a move; one that was called off before it began has no result."""
    if task.cancelled():
        return Result(move, 0, 0, 0.0, "", 0, Cancelled("called off before it began"))
    return task.result()
