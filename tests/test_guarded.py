"""A policy under guard: what fails, what is held out, and what stops it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, nan
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btb.controller import Controller
from btb.simulation.causal import simulate_causal
from btb.simulation.setups import SETUPS
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from forecasting.forecaster import Forecaster
from policies import make_policy
from policies.base import (
    ClusterView,
    Compute,
    Copy,
    Decision,
    Due,
    Feedback,
    Foresight,
    Keep,
    Policy,
)
from policies.errors import PolicyError
from policies.guarded import Guarded
from policies.holdout import Holdout, Side
from policies.still import StillCluster

COPY = Copy(Prefix(1, 1, 2048), (1,), "r0", "r1", 100, inf, 1.0, 1.0, "for a test")


class Scripted:
    """Answers with `answers` in turn, the last one for ever; raises what is an error."""

    horizons_s = ()

    def __init__(self, *answers: Decision | Exception) -> None:
        self.answers = list(answers)
        self.learnt: list[str] = []

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        self.learnt.append(feedback.request_id)


def arrival(prefix: int = 1, at_s: float = 0.0, name: str = "q") -> Arrival:
    return Arrival(at_s, (prefix, 10_000 + prefix), 2048, 4100, request_id=name)


def guard(policy: Policy, mode: str = "off", **settings: float) -> Guarded:
    return Guarded(Random(1), lambda _: policy, mode=mode, **settings)  # type: ignore[arg-type]


def ask(guarded: Guarded, shown: Arrival, loads: Sequence[int] = (0, 0)) -> Decision:
    return guarded.decide(shown, (), StillCluster(list(loads)), shown.at_s)


FINE = Decision(("r1", "r0"), (COPY,), "fine")

FAULTS: list[tuple[str, Decision | Exception]] = [
    ("exception", ValueError("a bug")),
    ("invalid", Decision(())),
    ("invalid", Decision(("r7",))),
    ("invalid", Decision(("r0", "r0", "r1"))),
    ("invalid", Decision(("r0", "r1"), (replace(COPY, target="r7"),))),
    ("invalid", Decision(("r0", "r1"), (replace(COPY, source="r7"),))),
    ("invalid", Decision(("r0", "r1"), keeps=(Keep((1,), "r7", 5.0),))),
    ("not_finite", Decision(("r0", "r1"), keeps=(Keep((1,), "r1", nan),))),
    ("invalid", Decision(("r0", "r1"), (replace(COPY, size_bytes=0),))),
    ("invalid", Decision(("r0", "r1"), (replace(COPY, chain=(1, 2)),))),
    ("not_finite", Decision(("r0", "r1"), priority=nan)),
    ("not_finite", Decision(("r0", "r1"), priority=inf)),
    ("not_finite", Decision(("r0", "r1"), (replace(COPY, value_s=nan),))),
    ("not_finite", Decision(("r0", "r1"), (replace(COPY, cost_s=inf),))),
    ("not_finite", Decision(("r0", "r1"), (replace(COPY, deadline_s=nan),))),
]


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
@pytest.mark.parametrize(("kind", "answer"), FAULTS)
def test_what_fails_is_served_by_cache_aware_and_counted(
    kind: str, answer: Decision | Exception, mode: str
) -> None:
    guarded = guard(Scripted(answer), mode, holdout=1e-9)
    decision = ask(guarded, arrival(), loads=(3, 1))
    assert decision.ranked == ("r1", "r0")  # the lightest
    assert (decision.copies, decision.priority) == ((), 0.0)
    assert decision.reason == f"cache_aware: policy failed ({kind})"
    assert guarded.state.failures == {kind: 1}


def test_the_next_request_is_the_policys_again() -> None:
    guarded = guard(Scripted(ValueError("once"), FINE))
    assert ask(guarded, arrival()).copies == ()
    assert ask(guarded, arrival()) == FINE
    assert guarded.state.last_error == "ValueError('once')"


def test_a_replica_that_is_gone_is_left_out() -> None:
    guarded = guard(Scripted(Decision(("r9", "r1", "r0"))))
    assert ask(guarded, arrival()).ranked == ("r1", "r0")
    assert guarded.state.failures == {}


def test_a_lesson_that_fails_is_counted() -> None:
    class NoLessons(Scripted):
        def learn_one(self, decision: Decision, feedback: Feedback) -> None:
            raise ValueError("can't learn")

    guarded = guard(NoLessons(FINE))
    decision = ask(guarded, arrival())
    guarded.learn_one(decision, Feedback("q", "r1", 0.5, 0))
    assert guarded.state.failures == {"exception": 1}


def test_a_slow_policy_is_not_asked_for_ten_seconds() -> None:
    guarded = guard(Scripted(FINE))
    assert guarded.fall_back(arrival(), StillCluster([0, 0]), 5.0, "slow").copies == ()
    assert ask(guarded, arrival(at_s=14.9)).reason == "cache_aware: stopped"
    assert ask(guarded, arrival(at_s=15.0)) == FINE
    assert guarded.state.failures == {"slow": 1}
    assert guarded.state.why == "a decision took too long"


def test_off_does_what_the_policy_does() -> None:
    alone, guarded = make_policy("btb", seed=1), guard(make_policy("btb", seed=1))
    for number in range(30):
        shown = arrival(prefix=1 + number % 4, at_s=0.1 * number, name=f"q{number}")
        cluster = StillCluster([number % 5, 1, 2], resident=[1, 0, 2])
        assert guarded.decide(shown, (), cluster, shown.at_s) == alone.decide(
            shown, (), cluster, shown.at_s
        )


def test_observing_counts_what_would_be_done_and_does_what_cache_aware_does() -> None:
    inside = Scripted(FINE)
    guarded, usual = guard(inside, "observe"), make_policy("cache_aware", seed=9)
    for number in range(4):
        shown = arrival(name=f"q{number}")
        decision = ask(guarded, shown, loads=(0, 3))
        assert decision.ranked == usual.decide(shown, (), StillCluster([0, 3]), 0.0).ranked
        assert decision.copies == ()
        guarded.learn_one(decision, Feedback(shown.request_id, "r0", 0.5, 0))
    state = guarded.state
    assert (state.observed, state.elsewhere, state.copies, state.copied_bytes) == (4, 4, 4, 400)
    assert inside.learnt == ["q0", "q1", "q2", "q3"]  # it waits for nobody for ever


def test_a_burst_stays_on_one_side_for_an_hour_and_a_share_is_held_out() -> None:
    holdout = Holdout(0.05, b"a key")
    sides = [holdout.holds_out(arrival(prefix)) for prefix in range(4000)]
    assert 140 <= sum(sides) <= 260  # 200 of them, less or more four standard deviations
    assert sides == [holdout.holds_out(arrival(prefix, 3599.0)) for prefix in range(4000)]
    later = [holdout.holds_out(arrival(prefix, 3600.0)) for prefix in range(4000)]
    assert sum(one and other for one, other in zip(sides, later, strict=True)) < 30
    assert sides != [Holdout(0.05, b"other").holds_out(arrival(p)) for p in range(4000)]


def test_what_is_held_out_has_the_queue_order_that_the_policy_has() -> None:
    ordered = replace(FINE, priority=3.0)
    for answer, expected in ((FINE, 0.0), (ordered, 4.1)):
        guarded = guard(Scripted(answer), "enforce", holdout=0.5)
        found = [ask(guarded, arrival(p, name=f"q{p}")) for p in range(40)]
        held_out = [one for one in found if one.reason == "cache_aware: held out"]
        assert 0 < len(held_out) < 40
        assert held_out[-1].priority == pytest.approx(expected)


def test_who_is_held_out_shares_work_with_those_who_still_wait_only() -> None:
    ordered = replace(FINE, priority=3.0)
    guarded = guard(Scripted(ordered), "enforce", holdout=0.5)
    sides = {p: ask(guarded, arrival(p, name=f"first {p}")).reason for p in range(40)}
    held_out = max(p for p, reason in sides.items() if reason == "cache_aware: held out")
    treated = min(p for p, reason in sides.items() if reason == "fine")
    assert treated < held_out  # so the order is known by then
    # 4.1 s of work; one who waits already shares it.
    decision = ask(guarded, arrival(held_out, name="second"))
    assert decision.priority == pytest.approx(4.1 / 2)
    for name in ("second", f"first {held_out}"):
        guarded.learn_one(decision, Feedback(name, decision.ranked[0], 0.5, 0))
    assert ask(guarded, arrival(held_out, name="third")).priority == pytest.approx(4.1)


def test_cache_aware_knows_where_the_policy_sent_what_when_it_takes_over() -> None:
    guarded = guard(Scripted(FINE))
    assert ask(guarded, arrival()).ranked[0] == "r1"
    guarded.fall_back(arrival(2), StillCluster([0, 0]), 0.0, "slow")
    assert ask(guarded, arrival(at_s=1.0), loads=(0, 9)).ranked[0] == "r1"  # not the lightest


def run_visits(guarded: Guarded, ratio: float, visits: range) -> None:
    """Go through visits of 5 requests, a minute apart; the policy multiplies TTFT by `ratio`."""
    rng = Random(1)
    for visit in visits:
        for number in range(5):
            shown = arrival(prefix=visit, at_s=60.0 * visit, name=f"q{visit}-{number}")
            decision = ask(guarded, shown)
            ttft_s = rng.lognormvariate(0.0, 0.3) * (ratio if decision.reason == "fine" else 1.0)
            guarded.learn_one(decision, Feedback(shown.request_id, "r0", ttft_s, 0))


def test_it_stops_where_the_policy_makes_it_worse_and_says_why() -> None:
    guarded = guard(Scripted(FINE), "enforce", holdout=0.3, rest_s=1e9)
    run_visits(guarded, ratio=1.5, visits=range(300))
    assert guarded.state.why.startswith("worse: TTFT +49% (")
    assert ask(guarded, arrival(at_s=99_999.0)).reason == "cache_aware: stopped"
    assert guarded.state.stops == 1


def test_it_stops_where_the_policy_makes_nothing_better_once_there_was_time_for_it() -> None:
    guarded = guard(Scripted(FINE), "enforce", holdout=0.3, enough=100, rest_s=1e9)
    run_visits(guarded, ratio=1.0, visits=range(250))
    assert guarded.state.why == ""
    run_visits(guarded, ratio=1.0, visits=range(250, 450))
    assert guarded.state.why.startswith("not better: TTFT ")


def test_it_goes_on_where_the_policy_makes_it_better() -> None:
    guarded = guard(Scripted(FINE), "enforce", holdout=0.3, enough=100)
    run_visits(guarded, ratio=0.7, visits=range(1200))
    assert guarded.state.stops == 0
    assert guarded.state.why == ""


def test_what_was_stopped_is_tried_again_after_its_rest() -> None:
    guarded = guard(Scripted(FINE), "enforce", holdout=0.3, rest_s=600.0)
    run_visits(guarded, ratio=2.0, visits=range(300))
    assert guarded.state.stops > 1


def test_the_interval_is_wrong_in_at_most_a_twentieth_of_all_runs_however_often_it_is_seen() -> (
    None
):
    # Sizes of visits are heavy-tailed, TTFT of visits too; the sides don't differ. A run is looked
    # at after each held out visit, up to 200 of them.
    rng, runs, wrong = Random(3), 400, 0
    for _ in range(runs):
        holdout = Holdout(0.05, b"")
        for visit in range(200 * 4):
            side = holdout.treated if visit % 4 else holdout.held_out
            weight = min(50.0, 3.0 * rng.paretovariate(1.2))
            side.add(weight, rng.gauss(0.0, 1.0) + (2.0 if rng.random() < 0.05 else 0.0))
            change = None if visit % 4 else holdout.change()
            if change is not None and (change.is_worse or change.is_better):
                wrong += 1
                break
    assert 0 < wrong <= 0.05 * runs


def test_mean_and_weight_of_a_side_are_those_of_its_visits() -> None:
    side = Side()
    for weight, value in ((1.0, 2.0), (3.0, 4.0)):
        side.add(weight, value)
    assert side.mean == pytest.approx(14 / 4)
    assert side.count == pytest.approx(16 / 10)  # Kish's effective number
    # sum w² (y - mean)² / (sum w)² = (1 · 1.5² + 9 · 0.5²) / 16
    assert side.variance == pytest.approx(4.5 / 16)


def test_small_visits_and_prompts_without_a_chain_are_not_counted() -> None:
    guarded = guard(Scripted(FINE), "enforce", holdout=0.3)
    for visit in range(100):
        for number in range(2):
            shown = arrival(prefix=visit, at_s=60.0 * visit, name=f"q{visit}-{number}")
            guarded.learn_one(ask(guarded, shown), Feedback(shown.request_id, "r0", 1.0, 0))
            bare = Arrival(60.0 * visit, (), 2048, 5, request_id=f"b{visit}-{number}")
            guarded.learn_one(ask(guarded, bare), Feedback(bare.request_id, "r0", 1.0, 0))
    holdout = guarded._holdout  # no other way to see it
    assert (holdout.treated.visits, holdout.held_out.visits) == (0, 0)


@pytest.mark.parametrize(("name", "value"), [("mode", "on"), ("holdout", "0"), ("holdout", "1")])
def test_a_setting_that_makes_no_sense_is_refused(name: str, value: str) -> None:
    with pytest.raises(PolicyError, match=f"{name} must be"):
        make_policy("guarded", seed=1, **{name: value})


class Mad:
    """Fails in any way, drawn by chance, or does as `btb` would."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._sane = make_policy("btb", seed=1)
        self.horizons_s = self._sane.horizons_s

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        answers: list[Decision | Exception] = [answer for _, answer in FAULTS]
        answer = self._rng.choice([*answers, FINE, FINE])
        if isinstance(answer, Exception):
            raise answer
        if answer is FINE:
            return self._sane.decide(arrival, forecasts, cluster, now_s)
        return answer

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        if self._rng.random() < 0.3:
            raise KeyError("no lesson")
        self._sane.learn_one(decision, feedback)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(["off", "observe", "enforce"]),
    drawn=st.lists(st.tuples(st.floats(0, 2), st.integers(0, 3)), min_size=1, max_size=40),
)
def test_no_request_is_ever_lost(seed: int, mode: str, drawn: list[tuple[float, int]]) -> None:
    at_s, window = 0.0, []
    for number, (gap_s, prefix) in enumerate(drawn):
        at_s += gap_s
        chain = (*range(100 * prefix, 100 * prefix + 40), 10_000 + number)
        window.append(Arrival(at_s, chain, 256, 256 * 41, 5))
    guarded = Guarded(Random(seed), lambda _: Mad(seed), mode=mode, holdout=0.3)
    result = simulate_causal(SETUPS["70b_h100x4"], Controller(guarded, Forecaster({})), window)
    assert len(result.ttft_s) == len(window)
    assert np.isfinite(result.ttft_s).all()
    decided = guarded.state.treated + guarded.state.observed + guarded.state.held_out
    assert decided + sum(guarded.state.failures.values()) >= len(window)


class Foreseeing(Scripted):
    """Keeps what is due on `replica`; raises an error if that is ""."""

    lead_s = 60.0

    def __init__(self, replica: str) -> None:
        super().__init__(FINE)
        self._replica = replica

    def anticipate(self, due: Sequence[Due], cluster: ClusterView, now_s: float) -> Foresight:
        if not self._replica:
            raise ValueError("can't see")
        computes = tuple(Compute(one.chain, self._replica, "due") for one in due)
        return Foresight(computes=computes)


def due(prefix: int) -> Due:
    forecast = Forecast(Prefix(prefix, 1, 2048), 0.0, 5, {})
    return Due(forecast, (prefix,))


def test_nothing_is_done_ahead_of_prefixes_that_are_held_out() -> None:
    guarded = guard(Foreseeing("r1"), "enforce", holdout=0.5)
    ahead = guarded.anticipate([due(p) for p in range(40)], StillCluster([0, 0]), 0.0)
    seen = {compute.chain[0] for compute in ahead.computes}
    decided = {p for p in range(40) if ask(guarded, arrival(p, name=f"q{p}")).reason == "fine"}
    assert seen == decided
    assert 0 < len(seen) < 40


def test_looking_ahead_may_fail_too() -> None:
    for replica, kind in (("", "exception"), ("r7", "invalid")):
        guarded = guard(Foreseeing(replica), "off")
        assert guarded.anticipate([due(1)], StillCluster([0, 0]), 0.0) == Foresight()
        assert guarded.state.failures == {kind: 1}


def test_nobody_looks_ahead_while_observed_or_stopped() -> None:
    observed, stopped = guard(Foreseeing("r1"), "observe"), guard(Foreseeing("r1"), "off")
    assert (observed.lead_s, stopped.lead_s, guard(Scripted(FINE)).lead_s) == (0.0, 60.0, 0.0)
    stopped.fall_back(arrival(), StillCluster([0, 0]), 0.0, "slow")
    assert stopped.anticipate([due(1)], StillCluster([0, 0]), 5.0) == Foresight()
    assert stopped.anticipate([due(1)], StillCluster([0, 0]), 10.0).computes


def test_compare_takes_a_guarded_policy_by_name() -> None:
    make: Callable[..., Policy] = make_policy
    guarded = make("guarded", seed=1, policy="kv_cost", mode="observe", holdout="0.2")
    assert isinstance(guarded, Guarded)
    assert type(guarded.inside).__name__ == "KvCost"
    assert guarded.state.mode == "observe"
