"""What a policy reaches that knows all arrivals: the best of several, improved by search."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, cast

import numpy as np

from btb.controller import Controller
from btb.simulation.causal import simulate_causal
from btb.simulation.oracle import Oracle
from btb.simulation.parameters import USUAL, CausalParameters
from btb.simulation.result import Result
from btb.simulation.setups import Setup
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from forecasting.forecaster import Forecaster
from models import make_models
from policies.base import Anticipating, ClusterView, Decision, Due, Feedback, Foresight, Policy
from policies.order import AGE_PRICE, work_s
from policies.registry import make_policy

NAME = "clairvoyant"
"""What `btb compare` calls it."""

TRIES = 8
"""Decisions that are tried the other way round, one after the other, unless said otherwise."""

FORBIDDEN_S = 1e6
"""Queue that a replica is shown with where a request must not go."""

EXACT = ""
"""In place of a model's name: forecasts that are always right."""

CANDIDATES: tuple[tuple[str, dict[str, float], str], ...] = (
    ("btb", {}, EXACT),
    ("btb", {"link_price": 0.0, "evict_price": 0.0}, EXACT),
    ("btb", {"horizon_s": 60.0}, EXACT),
    ("btb", {}, "river"),
    ("early_rdma", {}, EXACT),
    ("ordered_cache_aware", {}, EXACT),
    ("ordered_early_rdma", {}, EXACT),
    ("ordered_least_load", {}, EXACT),
)
"""What is tried first: `btb` with exact forecasts and without, and what is best of the rest."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to serve a window, by what makes its policy, with what came of it."""

    make: Callable[[], Policy]
    model: str
    avoided: dict[str, str]
    result: Result

    @property
    def mean_s(self) -> float:
        """Its mean TTFT."""
        return float(self.result.ttft_s.mean())


def simulate_clairvoyant(
    setup: Setup,
    arrivals: Sequence[Arrival],
    parameters: CausalParameters = USUAL,
    *,
    tries: int = TRIES,
    seed: int = 0,
) -> Result:
    """Return the lowest mean TTFT that is found for a window whose arrivals are all known.

    The engine is as causal as ever: KV is used once it has been computed or received. Forecasts
    are exact (`Oracle`), so KV that exists is in place before a burst that comes back. Nothing is
    computed before it is first asked for, so `lower_bound` holds. First the policies of
    `CANDIDATES`; the best two of them then with each request's work shared by those that are yet
    to come (`FutureOrder`), with and without a price on age; then `tries` times one of the requests
    that wait longest is kept off the replica that it went to, and what is better stays. That is
    no proof of an optimum.
    """
    arrivals = [replace(one, request_id=str(index)) for index, one in enumerate(arrivals)]

    def attempt(make: Callable[[], Policy], model: str, avoided: dict[str, str]) -> Attempt:
        policy = Avoiding(make(), avoided)
        if model == EXACT:
            forecaster: Forecaster = Oracle(arrivals)
        else:
            forecaster = Forecaster(make_models(model, policy.horizons_s))
        controller = Controller(policy, forecaster)
        result = simulate_causal(setup, controller, arrivals, parameters)
        return Attempt(make, model, avoided, result)

    found = [
        attempt(partial(make_policy, name, seed=seed, **given), model, {})
        for name, given, model in CANDIDATES
    ]
    if not arrivals:
        return found[0].result
    first, second = sorted(found, key=lambda one: one.mean_s)[:2]
    best = first
    for one in (first, second):
        for age_price in (AGE_PRICE, 0.0):
            ordered = partial(FutureOrder, one.make, arrivals, age_price)
            best = _better(best, attempt(ordered, one.model, {}))
    rng = Random(seed)
    for _ in range(tries):
        index = _one_that_waits(best.result, rng)
        avoided = {**best.avoided, str(index): f"r{best.result.replica[index]}"}
        best = _better(best, attempt(best.make, best.model, avoided))
    return best.result


def _better(one: Attempt, other: Attempt) -> Attempt:
    return other if other.mean_s < one.mean_s else one


def _one_that_waits(result: Result, rng: Random) -> int:
    """Return a request, the longer its TTFT and the more of its prompt it computed the likelier."""
    computed = result.input_tokens - sum(result.hit_tokens.values())
    weights = np.maximum(result.ttft_s, 0.0) * np.maximum(computed, 1)
    return rng.choices(range(len(weights)), weights.tolist())[0]


class Around:
    """A policy around another one, which does all that is not said otherwise."""

    def __init__(self, inside: Policy) -> None:
        self._inside = inside

    @property
    def horizons_s(self) -> tuple[float, ...]:
        """Those of the policy inside."""
        return self._inside.horizons_s

    @property
    def lead_s(self) -> float:
        """That of the policy inside."""
        return self._inside.lead_s if isinstance(self._inside, Anticipating) else 0.0

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return what the policy inside decides."""
        return self._inside.decide(arrival, forecasts, cluster, now_s)

    def anticipate(self, due: Sequence[Due], cluster: ClusterView, now_s: float) -> Foresight:
        """Return what the policy inside does ahead."""
        assert isinstance(self._inside, Anticipating)
        return self._inside.anticipate(due, cluster, now_s)

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        """Let the policy inside learn."""
        self._inside.learn_one(decision, feedback)


class FutureOrder(Around):
    """Serves first who has least work for all who wait for it, those to come until it is done too.

    Smith's rule as `policies.order` has it, with the requests that will have come by then counted
    in place of those that wait already.
    """

    def __init__(
        self, make: Callable[[], Policy], arrivals: Sequence[Arrival], age_price: float
    ) -> None:
        super().__init__(make())
        self._oracle = Oracle(arrivals)
        self._age_price = age_price

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return what the policy inside decides, with another priority."""
        self._oracle.observe(arrival)
        decision = self._inside.decide(arrival, forecasts, cluster, now_s)
        needed_s = work_s(arrival, decision.ranked[0], cluster)
        sharing = 1 + self._oracle.coming(arrival, needed_s)
        return replace(decision, priority=needed_s / sharing + self._age_price * arrival.at_s)


class Avoiding(Around):
    """Keeps some requests off one replica each, by showing it with an endless queue."""

    def __init__(self, inside: Policy, avoided: dict[str, str]) -> None:
        super().__init__(inside)
        self._avoided = avoided

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return what the policy inside decides of the cluster as it is shown."""
        name = self._avoided.get(arrival.request_id)
        if name is not None:
            number = list(cluster.replicas).index(name)
            cluster = cast(ClusterView, _Shown(cluster, number))
        return self._inside.decide(arrival, forecasts, cluster, now_s)


class _Shown:
    """A cluster view in which one replica is busy for ever; all else is as it is."""

    def __init__(self, cluster: ClusterView, busy: int) -> None:
        self._cluster = cluster
        self._busy = busy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def queue_s(self, priorities: Sequence[float] | None = None) -> list[float]:
        queue_s = list(self._cluster.queue_s(priorities))
        queue_s[self._busy] += FORBIDDEN_S
        return queue_s

    def loads(self) -> list[int]:
        loads = list(self._cluster.loads())
        loads[self._busy] += int(FORBIDDEN_S)
        return loads
