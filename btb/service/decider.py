"""Asks the policy where a request goes, and answers even where the policy doesn't."""

import logging
from collections.abc import Callable, Sequence
from time import perf_counter

from btb.controller import Controller
from btb.service.parts import Parts
from btb.service.view import LiveView
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import Decision, Feedback

log = logging.getLogger(__name__)


class Decider:
    """The controller, with a stopwatch around it; its policy is guarded (`policies.guarded`).

    The guard sees to a policy that fails. What else may fail is a forecast, or time: `clock_s` is
    read before and after, and a decision that took more than `limits.decision_s` is replaced too.
    """

    def __init__(self, parts: Parts, clock_s: Callable[[], float] = perf_counter) -> None:
        self._parts = parts
        self._controller = Controller(parts.guard, parts.forecaster)
        self._clock_s = clock_s
        self.forecasts: Sequence[Forecast] = ()
        """What the latest decision, or the latest trial, was made on."""

    def decide(self, arrival: Arrival, view: LiveView) -> Decision:
        """Return where `arrival` goes, which counts as come; only replicas that are there."""
        metrics = self._parts.metrics
        started_s = self._clock_s()
        decision = self._decided(arrival, view)
        took_s = self._clock_s() - started_s
        if took_s > self._parts.limits.decision_s:
            log.warning("a decision took %.3f s; the policy is not asked for a while", took_s)
            decision = self._parts.guard.fall_back(arrival, view, arrival.at_s, "slow")
        metrics.decision_s.observe(took_s)
        metrics.arrivals.labels("routed").inc()
        metrics.decided(decision.reason)
        log.debug("%s to %s: %s", arrival.request_id, decision.ranked[0], decision.reason)
        return decision

    def _decided(self, arrival: Arrival, view: LiveView) -> Decision:
        state = self._parts.guard.state
        failed = sum(state.failures.values())
        try:
            decision = self._controller.on_arrival(arrival, view)
            self.forecasts = self._controller.forecasts
            if sum(state.failures.values()) > failed:
                log.error("the policy failed: %s", state.last_error or decision.reason)
            if not self._parts.guard.horizons_s:
                # The controller leaves this out for such a policy, but forecasts are asked for.
                self._parts.forecaster.observe(arrival)
        except Exception as error:  # a model may be anybody's, and requests must be served
            log.exception("the forecast failed")
            self.forecasts = ()
            return self._parts.guard.fall_back(arrival, view, arrival.at_s, "forecast", error)
        return decision

    def try_out(self, arrival: Arrival, view: LiveView) -> Decision:
        """Return where `arrival` would go. It does not count as come.

        A policy that remembers where it sent requests remembers this one, too.
        """
        guard, forecaster = self._parts.guard, self._parts.forecaster
        try:
            self.forecasts = forecaster.forecast_path(arrival) if guard.horizons_s else ()
        except Exception as error:  # as above
            log.exception("the forecast failed")
            self.forecasts = ()
            return guard.fall_back(arrival, view, arrival.at_s, "forecast", error)
        return guard.decide(arrival, self.forecasts, view, arrival.at_s)

    def learn(self, feedback: Feedback) -> None:
        """Tell the policy what came of a decision."""
        self._controller.on_first_token(feedback)
