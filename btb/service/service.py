"""One running service: its parts put together, its start and its stop."""

import asyncio
import logging
from contextlib import suppress
from random import Random

from btb.config import Config
from btb.errors import ConfigError
from btb.service.cluster import LiveCluster
from btb.service.decider import Decider
from btb.service.errors import Behind
from btb.service.feed import Feed
from btb.service.forecasts import Forecasts
from btb.service.keeper import ModelKeeper
from btb.service.learning import Replayed, learn_log
from btb.service.metrics import Metrics
from btb.service.models import Models
from btb.service.opening import open_log
from btb.service.outcomes import Outcomes
from btb.service.outstanding import Outstanding
from btb.service.parts import Parts
from btb.service.router import Router
from btb.service.tenants import Tenants
from btb.simulation.setups import SETUPS
from forecasting.forecaster import Forecaster
from policies.base import Policy
from policies.errors import PolicyError
from policies.guarded import Guarded

log = logging.getLogger(__name__)

TICK_S = 1.0
"""How often labels that have come due are learnt from, and what is over is let go of."""


class Service:
    """Made, then `start`ed in an event loop, and `stop`ped there.

    With a `keeper`, which made `forecaster`, its models may be replaced while it runs.

    Raises
    ------
    ConfigError
        If the log's folder can't be used, or a setting of the guard is wrong.
    """

    def __init__(
        self,
        config: Config,
        policy: Policy,
        forecaster: Forecaster,
        keeper: ModelKeeper | None = None,
    ) -> None:
        self.config = config
        self.ready = False
        self.replayed = Replayed()
        metrics = Metrics()
        self._open = open_log(config.log, metrics)
        self.parts = Parts(
            guard=_guard(config, policy),
            forecaster=forecaster,
            cluster=LiveCluster(SETUPS[config.setup], copies=config.copies),
            outstanding=Outstanding(
                config.limits.outstanding,
                config.limits.outcome_timeout_s,
                lambda cause: metrics.released.labels(cause).inc(),
            ),
            log=self._open.log,
            clock=self._open.clock,
            tenants=Tenants(),
            limits=config.limits,
            metrics=metrics,
        )
        decider = Decider(self.parts)
        self.feed = Feed(self.parts)
        self.router = Router(self.parts, decider)
        self.outcomes = Outcomes(self.parts, decider)
        self.forecasts = Forecasts(self.parts)
        self.models = Models(keeper, self.parts)
        self._watch()
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to read the log; requests are taken once that is done."""
        self._running = [asyncio.create_task(one) for one in (self._run(), self.models.watch())]

    async def stop(self) -> None:
        """Write what waits, and let go of everything."""
        self.ready = False
        for task in self._running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.models.close()
        await self._open.close()

    def check_ready(self) -> None:
        """Return if requests are taken.

        Raises
        ------
        Behind
            While the log is still being read.
        """
        if not self.ready:
            seen = self.replayed
            raise Behind(f"still reading the log: {seen.read_bytes} of {seen.total_bytes} bytes")

    async def _run(self) -> None:
        seen = self.replayed
        try:
            await learn_log(self._open.recovered, self.config.log.replay_bytes, self.parts, seen)
        except OSError as error:
            log.error("the rest of the log can't be read, going on without: %s", error)
        self.ready = True
        log.info("ready; %d arrivals came from the log", seen.arrivals)
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._tick(self.parts.clock.now_s())
            except Exception:  # the next tick may do better, and without any loads never fall
                log.exception("a tick failed")

    def _tick(self, now_s: float) -> None:
        parts = self.parts
        parts.forecaster.advance(now_s)
        parts.outstanding.expire(now_s)
        parts.metrics.copies.labels("expired").inc(parts.cluster.orders.expire(now_s))
        self.models.tick(now_s)

    def _watch(self) -> None:
        parts, watch = self.parts, self.parts.metrics.watch
        watch("btb_ready", "1 once the log has been read", lambda: self.ready)
        watch("btb_replicas", "Replicas known", lambda: len(parts.cluster))
        watch("btb_open_copies", "Copies ordered and not done", lambda: len(parts.cluster.orders))
        watch("btb_outstanding_requests", "Routed and not ended", lambda: len(parts.outstanding))
        watch("btb_unfed_arrivals", "Waiting to be counted", lambda: self.feed.unfed)
        watch("btb_log_queue_bytes", "Waiting to be written", lambda: parts.log.queued_bytes)
        watch("btb_log_lost_rows", "Rows that could not be written", lambda: parts.log.lost_rows)
        parts.metrics.watch_tallies(parts.forecaster.tallies)
        state = parts.guard.state
        parts.metrics.watch_failures(lambda: state.failures)
        watch("btb_guard_stops", "Times the guard stopped the policy", lambda: state.stops)
        watch("btb_guard_held_out", "Requests held out from the policy", lambda: state.held_out)
        watch("btb_guard_observed_bytes", "Not moved, in observe", lambda: state.copied_bytes)
        watch(
            "btb_guard_stopped",
            "1 while the guard lets cache_aware decide",
            lambda: parts.clock.now_s() < state.stopped_until_s,
        )


def _guard(config: Config, policy: Policy) -> Guarded:
    given = config.guard
    try:
        return Guarded(
            Random(config.seed), lambda _: policy, mode=given.mode, holdout=given.holdout
        )
    except PolicyError as error:
        raise ConfigError(f"guard: {error}") from error
