"""Makes coroutines wait for their turn on a link."""

import asyncio
from collections.abc import Collection, Mapping
from math import inf

from replication.budget import Ask, Budget, Link


class Pacer:
    """Runs a `Budget` on the event loop's clock."""

    def __init__(self, rates_bytes_s: Mapping[Link, float]) -> None:
        self._budget = Budget(rates_bytes_s)
        self._turns: dict[Ask, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def turn(self, links: Collection[Link], size_bytes: int, worth: float) -> None:
        """Return when `size_bytes` may go over all of `links`."""
        ask = self._budget.ask(links, size_bytes, worth)
        turn = self._turns[ask] = asyncio.get_running_loop().create_future()
        self._go_on()
        try:
            await turn
        finally:
            del self._turns[ask]
            if turn.cancelled():
                self._budget.withdraw(ask)
                self._go_on()

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        for ask in self._budget.grant(loop.time()):
            turn = self._turns[ask]
            if not turn.done():
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_s = self._budget.next_s()
        if next_s < inf:
            self._timer = loop.call_at(next_s, self._go_on)
