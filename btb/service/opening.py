"""Opens the log of a service: takes its folder, mends its end, and goes on behind it."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from btb.config import LogSettings
from btb.errors import ConfigError
from btb.service.clock import Clock, unix_s
from btb.service.log import GroupLog, NoLog, lock_folder
from btb.service.metrics import Metrics
from btb.service.parts import ArrivalLog
from btb.service.recovery import Recovered, recover
from btb.service.segments import Segments

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenLog:
    """A log that is written, what was there before, and the clock that goes with it."""

    log: ArrivalLog
    recovered: Recovered
    clock: Clock
    lock: int = -1

    async def close(self) -> None:
        """Write what waits and let go of the folder."""
        await self.log.close()
        if self.lock >= 0:
            os.close(self.lock)


def open_log(settings: LogSettings, metrics: Metrics) -> OpenLog:
    """Return the log that `settings` ask for; it keeps nothing if they name no folder.

    Raises
    ------
    ConfigError
        If the folder can't be read or written, or another process has it.
    """
    if not settings.dir:
        return OpenLog(NoLog(), Recovered((), 0, None), Clock(unix_s()))
    folder = Path(settings.dir)
    lock = lock_folder(folder)
    try:
        recovered = recover(folder)
    except OSError as error:
        os.close(lock)
        raise ConfigError(f"log folder {folder}: {error}") from error
    if recovered.cut_bytes:
        log.warning("cut %d bytes behind the last whole row of the log", recovered.cut_bytes)
    origin_unix_s = recovered.origin_unix_s
    clock = Clock(unix_s() if origin_unix_s is None else origin_unix_s)
    return OpenLog(_group_log(settings, recovered, clock, metrics), recovered, clock, lock)


def _group_log(
    settings: LogSettings, recovered: Recovered, clock: Clock, metrics: Metrics
) -> GroupLog:
    def synced(size_bytes: int, seconds: float) -> None:
        metrics.log_bytes.inc(size_bytes)
        metrics.fsync_s.observe(seconds)

    segments = Segments(
        Path(settings.dir),
        number=recovered.next_number,
        segment_bytes=settings.segment_bytes,
        origin_unix_s=clock.origin_unix_s,
    )
    return GroupLog(
        segments, group_s=settings.group_s, queue_bytes=settings.queue_bytes, synced=synced
    )
