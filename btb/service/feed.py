"""Arrivals on their way in: into the log first, then into the forecaster."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from btb.service.bodies import ArrivalBody, ArrivalsBody
from btb.service.errors import BadField, Behind
from btb.service.intake import make_arrival, one_tenant
from btb.service.parts import Parts
from btb.service.records import arrival_line
from forecasting.arrival import Arrival

YIELD_EVERY = 16
"""Arrivals fed in one go; then others have a turn on the event loop: a few milliseconds."""


class Feed:
    """Takes arrivals: all of a batch or none.

    They are counted once they are in the log, in the order of the log, so that what is refused was
    never counted and a restart counts the same.

    Attributes
    ----------
    unfed
        Arrivals that wait for the log or for their turn.
    """

    def __init__(self, parts: Parts) -> None:
        self.unfed = 0
        self._parts = parts
        self._turn = asyncio.Lock()

    async def take(self, body: ArrivalBody | ArrivalsBody, header_tenant: str) -> int:
        """Return how many arrivals were taken; they are in the log and counted.

        Raises
        ------
        Refused
            If one of them is bad, too many wait already, or the log can't be written.
        """
        bodies = body.arrivals if isinstance(body, ArrivalsBody) else [body]
        limits = self._parts.limits
        if len(bodies) > limits.batch:
            message = f"has {len(bodies)} items; at most {limits.batch} are taken"
            raise BadField(message, "body", "arrivals")
        if self.unfed + len(bodies) > limits.unfed_arrivals:
            raise Behind(f"{self.unfed} arrivals wait already")
        self.unfed += len(bodies)
        try:
            arrivals = await self._arrivals(bodies, header_tenant, isinstance(body, ArrivalsBody))
            await self._parts.log.commit(b"".join([arrival_line(one) for one in arrivals]))
            async with self._turn:
                await self._count(arrivals)
        finally:
            self.unfed -= len(bodies)
        return len(bodies)

    async def _arrivals(
        self, bodies: Sequence[ArrivalBody], header_tenant: str, many: bool
    ) -> list[Arrival]:
        now_s = self._parts.clock.now_s()
        found = []
        for index, body in enumerate(bodies):
            at = ("body", "arrivals", index) if many else ("body",)
            tenant = one_tenant(body.tenant, header_tenant, at)
            found.append(make_arrival(body, tenant, now_s, self._parts.limits, at))
            if index % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
        return found

    async def _count(self, arrivals: Sequence[Arrival]) -> None:
        parts = self._parts
        for number, arrival in enumerate(arrivals, start=1):
            chain = parts.tenants.tagged(arrival.chain, arrival.tenant)
            parts.forecaster.observe(replace(arrival, chain=chain))
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        parts.metrics.arrivals.labels("posted").inc(len(arrivals))
