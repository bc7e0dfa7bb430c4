"""Never wait without an end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

from replication.errors import TransferTimeout


@asynccontextmanager
async def within(deadline_s: float) -> AsyncIterator[None]:
    """Call off what is inside `deadline_s` seconds from now; infinite for never.

    Raises
    ------
    TransferTimeout
        If it was called off for that, or there was no time at all.
    """
    if deadline_s <= 0.0:
        raise TransferTimeout("the deadline has passed already")
    limit = asyncio.timeout(deadline_s if deadline_s < inf else None)
    try:
        async with limit:
            yield
    except TimeoutError as late:
        if not limit.expired():
            raise
        raise TransferTimeout(f"not done within {deadline_s:.3g} s") from late
