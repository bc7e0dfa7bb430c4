"""Brings one copy from several givers at once; what one fails to bring, another does."""

import asyncio
from collections import deque
from collections.abc import Sequence

from replication.attempt import Giver, Pace, attempt
from replication.errors import PeerGone, ReplicationError
from replication.parcels import Parcels


class Striping:
    """Deals parcels out to givers as each is done with its last, so by what their links give.

    `retries` counts those who were turned to because another had failed.

    Parameters
    ----------
    copy
        What is to be brought.
    pace
        How.
    stripes
        How many to read from at once, at most.
    """

    def __init__(self, copy: Parcels, pace: Pace, stripes: int) -> None:
        self.retries = 0
        self._asked: list[Giver] = []
        self._copy = copy
        self._pace = pace
        self._stripes = stripes
        self._failures = 0
        self._running: dict[asyncio.Task[ReplicationError | None], Giver] = {}

    @property
    def path(self) -> list[Giver]:
        """Those who brought what is there, or, where nothing is, who was turned to last."""
        return [one for one in self._asked if one.settled_blocks] or self._asked[-1:]

    async def run(self, givers: Sequence[Giver]) -> None:
        """Bring all of it, from the first of `givers` that can.

        Raises
        ------
        ReplicationError
            If none could. Nothing of it can be seen, and nothing writes any more.
        """
        try:
            async with asyncio.TaskGroup() as group:
                error = await self._manage(group, deque(givers))
                for task in self._running:
                    task.cancel()
            if not self._copy.whole:
                raise error
        finally:
            self._copy.end()

    async def _manage(self, group: asyncio.TaskGroup, waiting: deque[Giver]) -> ReplicationError:
        """Return once it is whole, or nobody can go on; the error says why not."""
        error: ReplicationError = PeerGone("nobody is known to hold it")
        while not self._copy.whole:
            while waiting and self._short_of_hands():
                self._start(group, waiting.popleft())
            if not self._running:
                break
            done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                giver = self._running.pop(task)
                failed = task.result()
                if failed is None:
                    waiting.appendleft(giver)
                else:
                    error = failed
                    self._failures += 1
            if self._copy.broken is not None:
                return self._copy.broken
        return error

    def _short_of_hands(self) -> bool:
        hands = len(self._running)
        return hands < self._stripes and self._copy.wants_more_than(hands)

    def _start(self, group: asyncio.TaskGroup, giver: Giver) -> None:
        if self._failures > self.retries:
            self.retries += 1
        self._asked.append(giver)
        self._running[group.create_task(self._try(giver))] = giver

    async def _try(self, giver: Giver) -> ReplicationError | None:
        try:
            await attempt(giver, self._copy, self._pace)
        except ReplicationError as failed:
            return failed
        return None
