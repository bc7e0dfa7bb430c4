"""Several things done at once, of which none outlives the others' failure."""

import asyncio
from collections.abc import Coroutine, Iterable


async def together(work: Iterable[Coroutine[None, None, None]]) -> None:
    """Do all of it at once. After the first failure the rest has stopped when this raises it."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
