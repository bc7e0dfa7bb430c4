"""Several things done at once, of which none outlives the others' failure."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence


async def together(work: Iterable[Coroutine[None, None, None]]) -> None:
    """Do all of it at once; after the first failure, or a cancel, all has stopped on return.

    An `asyncio.TaskGroup` would do but for one thing: before Python 3.13, one that fails leaves its
    task counted as cancelled, and a timeout around it then ends in a cancel of that task.
    """
    tasks = [asyncio.create_task(one) for one in work]
    if not tasks:
        return
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await _ended(tasks)
    for task in done:
        task.result()


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait for all, however often this is called off meanwhile."""
    called_off = False
    while left := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError:
            called_off = True
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen: only the first one is told
    if called_off:
        raise asyncio.CancelledError
