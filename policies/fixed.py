"""The simplest policies: what a router does that looks at no prompt at all."""

from collections.abc import Sequence
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import ClusterView, Decision, Feedback
from policies.ranking import first_by, ranked


class FixedRule:
    """What all rules have in common that neither forecast nor learn."""

    horizons_s: tuple[float, ...] = ()

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        """Do nothing: the rule is fixed."""


class RandomReplica(FixedRule):
    """Any replica, with equal chances."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return the replicas in a random order."""
        names = list(cluster.replicas)
        self._rng.shuffle(names)
        return Decision(ranked=tuple(names), reason="at random")


class RoundRobin(FixedRule):
    """One replica after the other, from a random first one."""

    def __init__(self, rng: Random) -> None:
        self._turn = rng.randrange(1_000_000)

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return the replicas from the next one on."""
        names = cluster.replicas
        self._turn = (self._turn + 1) % len(names)
        return Decision((*names[self._turn :], *names[: self._turn]), reason="next in turn")


class LeastLoad(FixedRule):
    """The replica with the fewest requests waiting or running, ties broken at random."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return the replicas by rising load."""
        loads = cluster.loads()
        first = first_by(loads, self._rng)
        return Decision(ranked(cluster.replicas, loads, first), reason="fewest requests")
