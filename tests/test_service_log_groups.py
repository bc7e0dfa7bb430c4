"""Groups of rows that share one sync: who waits, who is refused, and what is lost when."""

import asyncio
from errno import ENOSPC

import pytest

from btb.service.errors import Behind, LogFailed
from btb.service.log import GroupLog


def line(number: int) -> bytes:
    return b'{"number": %d}\n' % number


class FakeDisk:
    """Keeps what is appended, or fails with the error it was given."""

    def __init__(self) -> None:
        self.groups: list[bytes] = []
        self.error: OSError | None = None
        self.closed = False

    def append(self, lines: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.groups.append(lines)

    def close(self) -> None:
        self.closed = True


def group_log(disk: FakeDisk, queue_bytes: int = 1_000) -> GroupLog:
    return GroupLog(
        disk, group_s=0.001, queue_bytes=queue_bytes, synced=lambda _bytes, _seconds: None
    )


def test_rows_that_come_together_share_one_sync() -> None:
    disk = FakeDisk()

    async def run() -> None:
        log = group_log(disk)
        log.note(b"note\n")
        await asyncio.gather(*(log.commit(line(number)) for number in range(5)))
        assert log.queued_bytes == 0
        await log.close()

    asyncio.run(run())
    assert disk.groups == [b"note\n" + b"".join(map(line, range(5)))]
    assert disk.closed


def test_closing_writes_what_waits() -> None:
    disk = FakeDisk()

    async def run() -> None:
        log = group_log(disk)
        log.note(line(1))
        await log.close()

    asyncio.run(run())
    assert disk.groups == [line(1)]


def test_a_full_disk_fails_those_who_wait_and_only_while_it_is_full() -> None:
    disk = FakeDisk()

    async def run() -> None:
        log = group_log(disk)
        disk.error = OSError(ENOSPC, "No space left on device")
        log.note(line(0))
        with pytest.raises(LogFailed, match="No space left on device"):
            await log.commit(line(1))
        assert (log.lost_rows, log.queued_bytes) == (1, 0)
        disk.error = None
        await log.commit(line(2))
        await log.close()

    asyncio.run(run())
    assert disk.groups == [line(2)]


def test_too_much_waiting_is_refused_and_notes_are_dropped_and_counted() -> None:
    disk = FakeDisk()

    async def run() -> None:
        log = group_log(disk, queue_bytes=50)
        log.note(b"x" * 40)
        with pytest.raises(Behind):
            await log.commit(b"x" * 11)
        log.note(b"x" * 11)
        assert log.lost_rows == 1
        await log.commit(b"x" * 10)
        await log.close()

    asyncio.run(run())
    assert disk.groups == [b"x" * 50]


def test_a_client_that_went_away_does_not_stop_the_others() -> None:
    disk = FakeDisk()

    async def run() -> None:
        log = group_log(disk)
        gone = asyncio.create_task(log.commit(line(1)))
        await asyncio.sleep(0)
        gone.cancel()
        await log.commit(line(2))
        await log.close()

    asyncio.run(run())
    assert disk.groups == [line(1) + line(2)]
