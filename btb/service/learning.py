"""Learns from the log what was known before the last stop."""

import asyncio
import logging
from dataclasses import dataclass, replace

from btb.service.parts import Parts
from btb.service.records import read_arrival
from btb.service.recovery import Recovered, newest_rows
from btb.traces.fields import BadField

log = logging.getLogger(__name__)

YIELD_EVERY = 64
"""Rows read in one go; then `/readyz` has a turn."""

REPORT_SHARE = 0.1
"""Progress is logged each time so much more has been read."""


@dataclass(slots=True)
class Replayed:
    """How far the log has been read: bytes of `total_bytes`, arrivals, rows that are damaged."""

    total_bytes: int = 0
    read_bytes: int = 0
    arrivals: int = 0
    damaged: int = 0
    newest_s: float = 0.0


async def learn_log(recovered: Recovered, newest_bytes: int, parts: Parts, seen: Replayed) -> None:
    """Feed the newest part of the log to the forecaster, as it was fed then; `seen` tells how far.

    A damaged row in the middle is counted and passed over; the file stays as it is.

    Raises
    ------
    OSError
        If a file can't be read.
    """
    seen.total_bytes = min(recovered.size_bytes, newest_bytes)
    report_at_bytes = 0.0
    for number, (row, size_bytes) in enumerate(newest_rows(recovered.files, newest_bytes)):
        seen.read_bytes += size_bytes
        if row is None:
            seen.damaged += 1
        elif row.get("kind") == "arrival":
            _learn(row, parts, seen)
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        if seen.read_bytes >= report_at_bytes:
            report_at_bytes += REPORT_SHARE * seen.total_bytes
            log.info(
                "read %d of %d bytes of log, %d arrivals",
                seen.read_bytes,
                seen.total_bytes,
                seen.arrivals,
            )
    parts.clock.catch_up(seen.newest_s)
    parts.metrics.arrivals.labels("log").inc(seen.arrivals)
    if seen.damaged:
        log.warning("%d rows of the log are damaged and were passed over", seen.damaged)


def _learn(row: dict[str, object], parts: Parts, seen: Replayed) -> None:
    try:
        arrival = read_arrival(row)
    except BadField as error:
        seen.damaged += 1
        log.debug("damaged row: %s", error)
        return
    chain = parts.tenants.tagged(arrival.chain, arrival.tenant)
    parts.forecaster.observe(replace(arrival, chain=chain))
    seen.arrivals += 1
    seen.newest_s = max(seen.newest_s, arrival.at_s)
