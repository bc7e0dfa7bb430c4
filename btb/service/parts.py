"""What the parts of one running service share."""

from dataclasses import dataclass
from typing import Protocol

from btb.config import Limits
from btb.service.clock import Clock
from btb.service.cluster import LiveCluster
from btb.service.metrics import Metrics
from btb.service.outstanding import Outstanding
from btb.service.tenants import Tenants
from forecasting.forecaster import Forecaster
from policies.guarded import Guarded


class ArrivalLog(Protocol):
    """Where rows are kept: `log.GroupLog` or `log.NoLog`."""

    queued_bytes: int
    lost_rows: int

    async def commit(self, lines: bytes) -> None:
        """Return once `lines` last, or raise Refused."""
        ...

    def note(self, line: bytes) -> None:
        """Have `line` written, if that can be."""
        ...

    async def close(self) -> None:
        """Write what waits, and stop."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """All of it is used from the event loop's thread only."""

    guard: Guarded
    forecaster: Forecaster
    cluster: LiveCluster
    outstanding: Outstanding
    log: ArrivalLog
    clock: Clock
    tenants: Tenants
    limits: Limits
    metrics: Metrics
