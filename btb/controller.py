"""The main flow, on one page: what arrives becomes a forecast, a decision, and a lesson.

Read this first. The simulator and the service drive this same class; it does no I/O and reads no
clock.
"""

from collections import OrderedDict
from collections.abc import Sequence

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from forecasting.forecaster import Forecaster
from policies.base import (
    Anticipating,
    ClusterView,
    Decision,
    Due,
    Feedback,
    Foresight,
    Policy,
)

MAX_UNANSWERED = 100_000
"""Decisions kept until their feedback comes; the oldest are forgotten past this."""


class Controller:
    """Turns what happened into where to go and what to copy. Holds all state, touches nothing."""

    def __init__(self, policy: Policy, forecaster: Forecaster) -> None:
        self._policy = policy
        self._ahead = policy if isinstance(policy, Anticipating) and policy.lead_s > 0.0 else None
        self._forecaster = forecaster
        self._unanswered: OrderedDict[str, Decision] = OrderedDict()
        self.forecasts: Sequence[Forecast] = ()
        """What the latest decision was made on."""

    def on_arrival(self, arrival: Arrival, cluster: ClusterView) -> Decision:
        """Learn from `arrival` and say where it goes and which copies start now."""
        self.forecasts = ()
        if self._policy.horizons_s:
            self._forecaster.observe(arrival)
            self.forecasts = self._forecaster.forecast_path(arrival)
        decision = self._policy.decide(arrival, self.forecasts, cluster, arrival.at_s)
        if arrival.request_id:
            self._unanswered[arrival.request_id] = decision
            if len(self._unanswered) > MAX_UNANSWERED:
                self._unanswered.popitem(last=False)
        return decision

    @property
    def anticipates(self) -> bool:
        """Whether `tick` has anything to say, ever."""
        return self._ahead is not None

    def tick(self, now_s: float, cluster: ClusterView) -> Foresight:
        """Say what to do ahead of bursts that are due; to be asked every few seconds.

        Looks at what is due, not at all that is known, so it costs little when nothing is.
        """
        policy, forecaster = self._ahead, self._forecaster
        if policy is None:
            return Foresight()
        forecaster.advance(now_s)
        found = forecaster.due(now_s, policy.lead_s)
        due = [Due(forecast, forecaster.chain(forecast.prefix.key)) for forecast in found]
        return policy.anticipate(due, cluster, now_s)

    def on_first_token(self, feedback: Feedback) -> None:
        """Tell the policy what its decision about this request was worth."""
        decision = self._unanswered.pop(feedback.request_id, None)
        if decision is not None:
            self._policy.learn_one(decision, feedback)
