"""Any policy, watched: what fails is served all the same, and what doesn't help is stopped."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, isnan
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import (
    Anticipating,
    ClusterView,
    Copy,
    Decision,
    Due,
    Feedback,
    Foresight,
    Keep,
    Policy,
)
from policies.cache_aware import CacheAware
from policies.errors import PolicyError
from policies.holdout import Holdout
from policies.order import QueueOrder, boundary_key, work_s

MODES = ("off", "observe", "enforce")

MAX_ERROR = 300
"""Characters of an error that are kept."""

MAX_OWN = 100_000
"""Decisions of the policy inside whose lesson is still to come; the oldest is forgotten past it."""


@dataclass(slots=True)
class GuardState:
    """What the guard has seen.

    `failures` counts by kind: `exception`, `invalid`, `not_finite`, and what `fall_back` was told;
    `last_error` is the latest exception. `stopped_until_s` is when the policy may decide again,
    `why` says in words what stopped it last. `observed`,
    `elsewhere`, `copies` and `copied_bytes` are what the policy would have done in mode `observe`:
    decisions, those for another replica, and what it would have moved.
    """

    mode: str
    failures: dict[str, int] = field(default_factory=dict)
    last_error: str = ""
    held_out: int = 0
    treated: int = 0
    stopped_until_s: float = 0.0
    stops: int = 0
    why: str = ""
    observed: int = 0
    elsewhere: int = 0
    copies: int = 0
    copied_bytes: int = 0

    def fail(self, kind: str, error: Exception | None = None) -> None:
        """Count a failure."""
        self.failures[kind] = self.failures.get(kind, 0) + 1
        if error is not None:
            self.last_error = repr(error)[:MAX_ERROR]


class Guarded:
    """Lets a policy decide while that is safe and pays; `cache_aware` does otherwise.

    Modes: with `off` the policy decides always; with `observe` it is asked, and counted, but
    `cache_aware` decides and nothing moves; with `enforce` it decides for all prefixes but a share
    `holdout`, which `cache_aware` serves with the same queue order. In all of them a decision that
    fails is replaced.

    In `enforce` the policy stops for `rest_s` if TTFT where it decides is

    - worse: the whole interval of the change (`policies.holdout`) lies above zero, whenever; or
    - not better: once `enough` visits were held out the interval does not lie below zero.

    Then it is tried again, from fresh counts. `state` tells of all this.

    Parameters
    ----------
    policy
        Makes the policy `inside`.
    holdout
        Share of the prefixes that is held out, between 0 and 1.
    enough
        Visits of held out prefixes after which the policy must have shown to be better.
    rest_s
        How long it is stopped.
    pause_s
        How long `cache_aware` decides after a decision that took too long.
    """

    def __init__(
        self,
        rng: Random,
        policy: Callable[[Random], Policy],
        *,
        mode: str = "enforce",
        holdout: float = 0.05,
        enough: int = 200,
        rest_s: float = 3600.0,
        pause_s: float = 10.0,
    ) -> None:
        if mode not in MODES:
            raise PolicyError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        if not 0.0 < holdout < 1.0:
            raise PolicyError(f"holdout must be between 0 and 1, got {holdout:g}")
        self.inside = policy(rng)
        self._usual = CacheAware(Random(rng.getrandbits(64)))
        self._order = QueueOrder()
        self._orders = False
        self._holdout = Holdout(holdout, rng.getrandbits(128).to_bytes(16))
        self._enough = enough
        self._rest_s = rest_s
        self._pause_s = pause_s
        self._own: OrderedDict[str, Decision] = OrderedDict()
        self.state = GuardState(mode)

    @property
    def horizons_s(self) -> tuple[float, ...]:
        """Those of the policy inside."""
        return self.inside.horizons_s

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return what the policy decides, or what `cache_aware` does in its place."""
        state = self.state
        if now_s < state.stopped_until_s:
            return self._as_usual(arrival, cluster, now_s, "stopped")
        if state.mode == "enforce" and self._is_held_out(arrival, cluster):
            return self._as_usual(arrival, cluster, now_s, "held out")
        try:
            decision = self.inside.decide(arrival, forecasts, cluster, now_s)
            fault = _fault(decision, cluster)
        except Exception as error:  # it may be anybody's, and requests must be served all the same
            return self.fall_back(arrival, cluster, now_s, "exception", error)
        if fault:
            return self.fall_back(arrival, cluster, now_s, fault)
        self._orders = self._orders or decision.priority != 0.0
        self._remember(arrival, decision)
        if state.mode == "observe":
            return self._observed(arrival, decision, cluster, now_s)
        there = tuple(name for name in decision.ranked if name in cluster.replicas)
        self._usual.note(arrival, there[0])
        state.treated += 1
        return decision if there == decision.ranked else replace(decision, ranked=there)

    @property
    def lead_s(self) -> float:
        """That of the policy inside; 0 if it doesn't look ahead, or is only observed."""
        if self.state.mode == "observe" or not isinstance(self.inside, Anticipating):
            return 0.0
        return self.inside.lead_s

    def anticipate(self, due: Sequence[Due], cluster: ClusterView, now_s: float) -> Foresight:
        """Return what the policy does ahead of bursts, except for prefixes that are held out."""
        state = self.state
        if now_s < state.stopped_until_s or not isinstance(self.inside, Anticipating):
            return Foresight()
        if state.mode == "enforce":
            out = self._holdout.holds_out_prefix
            due = [one for one in due if not out(one.forecast.prefix, one.chain, now_s)]
        try:
            ahead = self.inside.anticipate(due, cluster, now_s)
            fault = _fault_in(ahead.copies, ahead.keeps, set(cluster.replicas))
        except Exception as error:  # as above
            state.fail("exception", error)
            return Foresight()
        if not fault and not all(one.replica in cluster.replicas for one in ahead.computes):
            fault = "invalid"
        if fault:
            state.fail(fault)
            return Foresight()
        return ahead

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        """Take in what came of a request, whoever decided."""
        self._order.forget(feedback.request_id)
        self._holdout.took(feedback.request_id, feedback.ttft_s)
        own = self._own.pop(feedback.request_id, None)
        if own is not None:
            try:
                self.inside.learn_one(own, feedback)
            except Exception as error:  # as above
                self.state.fail("exception", error)

    def fall_back(
        self,
        arrival: Arrival,
        cluster: ClusterView,
        now_s: float,
        kind: str,
        error: Exception | None = None,
    ) -> Decision:
        """Return what `cache_aware` decides where something failed of this `kind`.

        For callers, too: with `slow` the policy is not asked again for `pause_s`.
        """
        self.state.fail(kind, error)
        if kind == "slow":
            self._stop(now_s + self._pause_s, "a decision took too long")
        return self._as_usual(arrival, cluster, now_s, f"policy failed ({kind})")

    def _is_held_out(self, arrival: Arrival, cluster: ClusterView) -> bool:
        holdout, state = self._holdout, self.state
        held_out = holdout.holds_out(arrival)
        holdout.expect(arrival, held_out, cluster.prefill_s(arrival.input_tokens, 0))
        state.held_out += held_out
        change = holdout.change()
        if change is None:
            return held_out
        said = (
            f"TTFT {change.change:+.0%} ({change.low:+.0%} to {change.high:+.0%}) against "
            f"{holdout.held_out.visits} held out visits"
        )
        if change.is_worse:
            self._stop(arrival.at_s + self._rest_s, f"worse: {said}")
        elif holdout.held_out.visits >= self._enough:
            if not change.is_better:
                self._stop(arrival.at_s + self._rest_s, f"not better: {said}")
            holdout.start_again()
        return held_out or arrival.at_s < state.stopped_until_s

    def _stop(self, until_s: float, why: str) -> None:
        self.state.stopped_until_s = until_s
        self.state.stops += 1
        self.state.why = why
        self._holdout.start_again()

    def _observed(
        self, arrival: Arrival, decision: Decision, cluster: ClusterView, now_s: float
    ) -> Decision:
        usual, state = self._as_usual(arrival, cluster, now_s, "only observed"), self.state
        state.observed += 1
        state.elsewhere += decision.ranked[0] != usual.ranked[0]
        state.copies += len(decision.copies)
        state.copied_bytes += sum(copy.size_bytes for copy in decision.copies)
        return usual

    def _as_usual(self, arrival: Arrival, cluster: ClusterView, now_s: float, why: str) -> Decision:
        decision = self._usual.decide(arrival, (), cluster, now_s)
        priority = 0.0
        if self._orders:  # else it would be behind all that the policy sends without one
            key, name = boundary_key(arrival), decision.ranked[0]
            needed_s = work_s(arrival, name, cluster)
            (priority,) = self._order.claims(arrival, key, [name]).priorities([needed_s])
            self._order.note(arrival, key, name)
        return replace(decision, reason=f"cache_aware: {why}", priority=priority)

    def _remember(self, arrival: Arrival, decision: Decision) -> None:
        if arrival.request_id:
            self._own[arrival.request_id] = decision
            if len(self._own) > MAX_OWN:
                self._own.popitem(last=False)


def _fault(decision: Decision, cluster: ClusterView) -> str:
    """Return what is wrong with `decision`, "" for nothing."""
    names = set(cluster.replicas)
    if not any(name in names for name in decision.ranked):
        return "invalid"
    if len(set(decision.ranked)) < len(decision.ranked):
        return "invalid"
    if not isfinite(decision.priority):
        return "not_finite"
    return _fault_in(decision.copies, decision.keeps, names)


def _fault_in(copies: Sequence[Copy], keeps: Sequence[Keep], names: set[str]) -> str:
    if not all(_can_be_made(copy, names) for copy in copies):
        return "invalid"
    if not all(keep.replica in names and keep.chain for keep in keeps):
        return "invalid"
    figures = [figure for copy in copies for figure in (copy.value_s, copy.cost_s)]
    times = [copy.deadline_s for copy in copies] + [keep.until_s for keep in keeps]
    if all(isfinite(figure) for figure in figures) and not any(isnan(one) for one in times):
        return ""
    return "not_finite"


def _can_be_made(copy: Copy, names: set[str]) -> bool:
    return (
        copy.source in names
        and copy.target in names
        and copy.size_bytes > 0
        and 0 < copy.prefix.blocks == len(copy.chain)
    )
