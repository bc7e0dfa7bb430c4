import asyncio
from contextlib import suppress

import pytest
from replicas import soon

from replication.errors import PeerGone, TransferTimeout
from replication.transports.deadline import within
from replication.transports.together import together


class Work:
    """Notes what begins and what ends."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def done(self) -> None:
        await asyncio.sleep(0)
        self.ended.append("done")

    async def fails(self) -> None:
        await asyncio.sleep(0)
        raise PeerGone("died")

    async def stubborn(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            self.ended.append("stubborn")


def test_all_is_done_on_return() -> None:
    work = Work()
    soon(together(work.done() for _ in range(3)))
    assert work.ended == ["done"] * 3
    soon(together(()))


def test_after_a_failure_the_rest_has_stopped() -> None:
    work = Work()
    with pytest.raises(PeerGone, match="died"):
        soon(together([work.stubborn(), work.fails(), work.fails()]))
    assert work.ended == ["stubborn"]


@pytest.mark.parametrize("times", [1, 3])
def test_called_off_however_often_it_waits_for_all_to_stop(times: int) -> None:
    work = Work()

    async def scenario() -> None:
        running = asyncio.create_task(together([work.stubborn(), work.done()]))
        await asyncio.sleep(0)
        for _ in range(times):
            running.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert "stubborn" in work.ended

    soon(scenario())


def test_a_timeout_after_a_failure_is_a_timeout() -> None:
    async def silent_after_a_failure() -> None:
        async with within(0.05):
            with suppress(PeerGone):
                await together([Work().fails()])
            await asyncio.Event().wait()

    with pytest.raises(TransferTimeout):
        soon(silent_after_a_failure())
