"""Carries out a plan, each move whole or not at all."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from replication.attempt import Pace, Tally, Target, attempt
from replication.budget import Link
from replication.errors import (
    Busy,
    Cancelled,
    NoRoom,
    PeerGone,
    ReplicationError,
)
from replication.pacer import Pacer
from replication.peer import Holder
from replication.plan import Move
from replication.result import Result
from replication.transports.deadline import within

CHUNK_BYTES = 8 << 20
"""Long enough that a round trip is small beside it, short enough to give way soon."""

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
    clock
        The clock that deadlines, and the targets' leases, are on; returns seconds.
    rates_bytes_s
        What copies may take of each replica's links, in bytes a second; no limit where absent.
    chunk_bytes
        Bytes read between two looks at who goes first.
    lease_s
        How long a holder is asked to keep blocks, and the most that one try takes.

    Raises
    ------
    ValueError
        If a rate or `chunk_bytes` isn't positive.
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        holders: Mapping[str, Holder],
        *,
        clock: Callable[[], float],
        rates_bytes_s: Mapping[Link, float] | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        lease_s: float = 30.0,
    ) -> None:
        if chunk_bytes < 1:
            raise ValueError(f"chunk_bytes must be at least 1, got {chunk_bytes}")
        self._targets = targets
        self._holders = holders
        self._clock = clock
        self._pacer = Pacer(rates_bytes_s or {})
        self._chunk_bytes = chunk_bytes
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
        tally = Tally()
        asked: list[str] = []
        error: ReplicationError | None = None
        try:
            if move.target not in self._targets:
                raise PeerGone(f"{move.target} is not known here")
            async with within(move.deadline_s - started_s), self._alone(move):
                await self._try_holders(move, tally, asked)
        except ReplicationError as failed:
            error = failed
        except asyncio.CancelledError:
            error = Cancelled("called off before it was whole")
        if tally.moved_bytes:
            error = None
        result = Result(
            move,
            moved_bytes=tally.moved_bytes,
            wasted_bytes=tally.wasted_bytes,
            took_s=self._clock() - started_s,
            path=self._path(move, asked),
            retries=max(0, len(asked) - 1),
            error=error,
        )
        logger.info("%s", result)
        return result

    async def _try_holders(self, move: Move, tally: Tally, asked: list[str]) -> None:
        """Ask one holder after the other, until the target has it all."""
        target = self._targets[move.target]
        error: ReplicationError = PeerGone("nobody is known to hold it")
        for name in move.holders:
            if not target.pool.missing(move.tenant, move.chain):
                return
            if name not in self._holders:
                error = PeerGone(f"{name} is not known here")
                continue
            asked.append(name)
            try:
                async with within(self._lease_s):
                    pace = self._pace(move, name)
                    await attempt(move, self._holders[name], target, pace, tally)
                return
            except (NoRoom, Busy):
                raise
            except ReplicationError as failed:
                error = failed
        if target.pool.missing(move.tenant, move.chain):
            raise error

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

    def _pace(self, move: Move, holder: str) -> Pace:
        links = ((holder, "out"), (move.target, "in"))
        return Pace(
            chunk_bytes=self._chunk_bytes,
            lease_s=self._lease_s,
            turn=lambda size_bytes: self._pacer.turn(links, size_bytes, move.worth),
            left_s=lambda: move.deadline_s - self._clock(),
            now_s=self._clock,
        )

    def _path(self, move: Move, asked: list[str]) -> str:
        if not asked:
            return ""
        transport = type(self._targets[move.target].transport).__name__
        return f"{asked[-1]} -> {move.target} over {transport}"


def _outcome(task: asyncio.Task[Result], move: Move) -> Result:
    """Return what came of a move; one that was called off before it began has no result."""
    if task.cancelled():
        return Result(move, 0, 0, 0.0, "", 0, Cancelled("called off before it began"))
    return task.result()
