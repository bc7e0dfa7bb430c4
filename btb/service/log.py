"""Writes the log in groups: many rows share one sync, off the event loop."""

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Protocol

from btb.errors import ConfigError
from btb.service.errors import Behind, LogFailed

log = logging.getLogger(__name__)

Synced = Callable[[int, float], None]
"""Told the bytes of each group that was synced, and the seconds that this took."""


class Sink(Protocol):
    """Where groups of lines go: `segments.Segments`."""

    def append(self, lines: bytes) -> None:
        """Write `lines` so that they last, or raise OSError."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class GroupLog:
    """A log for one event loop. A row is written at most `group_s` after it was given.

    Parameters
    ----------
    sink
        Where it is written, in a thread of its own.
    group_s
        How long the first row of a group waits for others.
    queue_bytes
        Most bytes that wait to be written.
    synced
        Told of each group.

    Attributes
    ----------
    queued_bytes
        What waits to be written, and what is being written.
    lost_rows
        Rows given to `note` that could not be written.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        group_s: float,
        queue_bytes: int,
        synced: Synced,
    ) -> None:
        self._sink = sink
        self._group_s = group_s
        self._queue_bytes = queue_bytes
        self._synced = synced
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="btb-log")
        self._lines: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._notes = 0
        self._failing = False
        self._writer: asyncio.Task[None] | None = None
        self.queued_bytes = 0
        self.lost_rows = 0

    async def commit(self, lines: bytes) -> None:
        """Return once `lines` are on the disk.

        Raises
        ------
        Behind
            If too much waits already.
        LogFailed
            If they can't be written. They are not in the log then.
        """
        if self.queued_bytes + len(lines) > self._queue_bytes:
            raise Behind(f"{self.queued_bytes} bytes wait to be written to the log")
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._add(lines)
        await done

    def note(self, line: bytes) -> None:
        """Have `line` written soon. If it can't be, it is counted as lost, and nothing else."""
        if self.queued_bytes + len(line) > self._queue_bytes:
            self.lost_rows += 1
            return
        self._notes += 1
        self._add(line)

    async def close(self) -> None:
        """Write what waits, then let go of the file. May be called twice."""
        if self._writer is not None:
            await self._writer
        self._thread.shutdown()
        self._sink.close()

    def _add(self, lines: bytes) -> None:
        self._lines.append(lines)
        self.queued_bytes += len(lines)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        # What came while a group was synced is a group already, and need not wait for more.
        await asyncio.sleep(self._group_s)
        while self._lines:
            lines, waiting, notes = b"".join(self._lines), self._waiting, self._notes
            self._lines, self._waiting, self._notes = [], [], 0
            started_s = perf_counter()
            try:
                await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._sink.append, lines
                )
            except OSError as error:
                self._fail(waiting, error)
                self.lost_rows += notes
            else:
                self._failing = False
                self._synced(len(lines), perf_counter() - started_s)
                for done in waiting:
                    if not done.done():  # its client may be gone
                        done.set_result(None)
            finally:
                self.queued_bytes -= len(lines)

    def _fail(self, waiting: list[asyncio.Future[None]], error: OSError) -> None:
        if not self._failing:  # once, not 200 times a second
            log.error("the log can't be written: %s", error)
        self._failing = True
        for done in waiting:
            if not done.done():
                done.set_exception(LogFailed(f"the log can't be written: {error.strerror}"))


class NoLog:
    """Keeps nothing: where no folder was named, and in tests."""

    queued_bytes = 0
    lost_rows = 0

    async def commit(self, lines: bytes) -> None:
        """Return at once."""

    def note(self, line: bytes) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


def lock_folder(folder: Path) -> int:
    """Make `folder` if need be and return a lock on it, which lasts as long as the handle is open.

    Raises
    ------
    ConfigError
        If it can't be made or another process has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        raise ConfigError(f"log folder {folder}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ConfigError(f"log folder {folder} is in use by another btb serve") from error
    return handle
