"""Asks the policy where a request goes, and answers even where the policy doesn't."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter

from btb.controller import Controller
from btb.service.parts import Parts
from btb.service.view import LiveView
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import Decision, Feedback

log = logging.getLogger(__name__)

FALLBACK = "fewest requests: the policy failed"


class Decider:
    """The controller, with a fallback and a stopwatch around it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._controller = Controller(parts.policy, parts.forecaster)
        self.forecasts: Sequence[Forecast] = ()
        """What the latest decision, or the latest trial, was made on."""

    def decide(self, arrival: Arrival, view: LiveView) -> Decision:
        """Return where `arrival` goes, which counts as come; only replicas that are there."""
        metrics = self._parts.metrics
        started_s = perf_counter()
        decision = self._usable(lambda: self._controller.on_arrival(arrival, view))
        self.forecasts = self._controller.forecasts
        if not self._parts.policy.horizons_s:
            # The controller leaves this out for such a policy, but forecasts are asked for here.
            self._parts.forecaster.observe(arrival)
        metrics.decision_s.observe(perf_counter() - started_s)
        metrics.arrivals.labels("routed").inc()
        metrics.decided(decision.reason)
        log.debug("%s to %s: %s", arrival.request_id, decision.ranked[0], decision.reason)
        return decision

    def try_out(self, arrival: Arrival, view: LiveView) -> Decision:
        """Return where `arrival` would go. It does not count as come.

        A policy that remembers where it sent requests remembers this one, too.
        """
        policy, forecaster = self._parts.policy, self._parts.forecaster

        self.forecasts = forecaster.forecast_path(arrival) if policy.horizons_s else ()
        return self._usable(lambda: policy.decide(arrival, self.forecasts, view, arrival.at_s))

    def learn(self, feedback: Feedback) -> None:
        """Tell the policy what came of a decision."""
        try:
            self._controller.on_first_token(feedback)
        except Exception:  # as above
            log.exception("no lesson from request %s", feedback.request_id)
            self._parts.metrics.policy_failures.inc()

    def _usable(self, ask: Callable[[], Decision]) -> Decision:
        """Return what `ask` decides, less what is gone; the least loaded where nothing is left."""
        cluster = self._parts.cluster
        try:
            decision = ask()
        except Exception:  # a policy may be anybody's, and requests must be served all the same
            log.exception("the policy failed")
            decision = Decision(())
        ranked = tuple(name for name in decision.ranked if cluster.find(name) is not None)
        if ranked:
            return decision if ranked == decision.ranked else replace(decision, ranked=ranked)
        self._parts.metrics.policy_failures.inc()
        order = sorted(cluster.replicas, key=lambda one: (one.requests(), one.routed))
        return Decision(tuple(one.name for one in order), reason=FALLBACK)
