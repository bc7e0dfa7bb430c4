"""Work in threads that is over when the wait for it is, however that ends."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `function` returns, called in a thread.

    A thread can't be called off. So a cancel is passed on only once it is done: it may have been
    writing to memory that is given to somebody else then.
    """
    working = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    called_off = False
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            called_off = True
    if called_off:
        if not working.cancelled():
            working.exception()  # seen
        raise asyncio.CancelledError
    return working.result()
