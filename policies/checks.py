"""What every policy has to do right, as checks that an outside author can run on theirs.

    from policies.checks import CHECKS
    for check in CHECKS:
        check(lambda rng: Mine(rng))

Each check makes fresh policies from a seeded `random.Random`, and raises AssertionError with the
reason where one falls short.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from models.counts import Counts
from policies.base import Anticipating, Decision, Due, Feedback, Policy
from policies.still import StillCluster

Make = Callable[[Random], Policy]

BLOCK_TOKENS = 16
HOT = tuple(range(1, 301))


def check_every_replica_is_ranked_once(make: Make) -> None:
    """The answer names all replicas, so that there is another one if the first is gone."""
    for replicas in (1, 2, 5):
        policy, cluster = make(Random(1)), StillCluster([3] * replicas)
        for number in range(10):
            ranked = _decide(policy, _arrival(number), cluster).ranked
            assert sorted(ranked) == sorted(cluster.replicas), f"ranked {ranked}"


def check_a_prompt_that_is_unknown_is_served(make: Make) -> None:
    """An arrival without a chain, or shorter than a block, gets a replica and no copy."""
    policy, cluster = make(Random(1)), StillCluster([2, 1])
    decision = _decide(policy, Arrival(0.0, (), BLOCK_TOKENS, 5, request_id="short"), cluster)
    assert set(decision.ranked) == {"r0", "r1"}
    assert not decision.copies, "there is nothing to copy"


def check_copies_can_be_carried_out(make: Make) -> None:
    """A copy is from a replica that holds, or will hold, the prefix, to another one."""
    policy = make(Random(1))
    cluster = StillCluster([9, 0, 1], queue=[9.0, 0.0, 0.1], resident=[300, 0, 0])
    for number in range(20):
        arrival = _arrival(number)
        decision = _decide(policy, arrival, cluster, expected=100.0)
        targets = [copy.target for copy in decision.copies]
        assert len(set(targets)) == len(targets), "one copy a replica"
        for copy in decision.copies:
            blocks = copy.prefix.blocks
            assert copy.source == "r0", "nobody else holds it"
            assert copy.target in ("r1", "r2"), "r0 holds it already"
            assert copy.chain == arrival.chain[:blocks], "the chain is that of the prefix"
            assert copy.prefix.key == copy.chain[-1], "the prefix is named by its last block"
            assert copy.size_bytes == blocks * cluster.block_bytes, "sizes add up"
            assert copy.reason, "a person can read why"


def check_nothing_is_copied_that_is_everywhere(make: Make) -> None:
    """No copy goes to a replica that holds the prefix."""
    policy, cluster = make(Random(1)), StillCluster([5, 0], resident=[300, 300])
    for number in range(20):
        assert not _decide(policy, _arrival(number), cluster, expected=100.0).copies


def check_the_same_seed_decides_the_same(make: Make) -> None:
    """Two policies from one seed answer alike: a run can be repeated."""
    cluster = StillCluster([1, 1, 1, 1], resident=[0, 300, 0, 0])
    both = [make(Random(7)), make(Random(7))]
    for number in range(50):
        one, other = (_decide(policy, _arrival(number), cluster) for policy in both)
        assert one == other, f"{one} is not {other}"


def check_the_cluster_is_only_looked_at(make: Make) -> None:
    """A view is read only."""
    policy = make(Random(1))
    cluster = StillCluster([2, 1, 0], queue=[1.0, 0.5, 0.0], resident=[300, 0, 0])
    before = repr(cluster)
    for number in range(20):
        _decide(policy, _arrival(number), cluster, expected=50.0)
    assert repr(cluster) == before, "the view was changed"


def check_priorities_and_figures_are_finite(make: Make) -> None:
    """Whatever is forecast, what comes out can be compared and added up."""
    policy, cluster = make(Random(1)), StillCluster([2, 0], queue=[50.0, 0.0], resident=[300, 0])
    for number, expected in enumerate((0.0, 1e-9, 1.0, 1e6)):
        decision = _decide(policy, _arrival(number), cluster, expected=expected)
        figures = [decision.priority, *(copy.value_s for copy in decision.copies)]
        figures += [copy.cost_s for copy in decision.copies]
        assert all(-1e12 < figure < 1e12 for figure in figures), f"not finite: {figures}"


def check_feedback_is_taken_in_any_order(make: Make) -> None:
    """Lessons may come late, twice, or for what it never decided."""
    policy, cluster = make(Random(1)), StillCluster([0, 0])
    decisions = [_decide(policy, _arrival(number), cluster) for number in range(10)]
    for number in (3, 1, 1, 9, 99):
        feedback = Feedback(f"q{number}", "r0", ttft_s=0.5, hit_tokens=0)
        policy.learn_one(decisions[number % 10], feedback)
    assert set(_decide(policy, _arrival(10), cluster).ranked) == {"r0", "r1"}


def check_replicas_may_come_and_go(make: Make) -> None:
    """A replica that is gone is not named, and a new one is used."""
    policy = make(Random(1))
    for replicas in (3, 1, 4, 2):
        cluster = StillCluster([0] * replicas)
        for number in range(5):
            ranked = _decide(policy, _arrival(number), cluster).ranked
            assert sorted(ranked) == sorted(cluster.replicas)


def check_what_is_done_ahead_can_be_carried_out(make: Make) -> None:
    """A policy that looks ahead names replicas that are there, and moves what somebody has."""
    policy = make(Random(1))
    if not isinstance(policy, Anticipating) or policy.lead_s <= 0.0:
        return
    for resident, stored in (([0, 0], [0, 300]), ([300, 0], [300, 300]), ([0, 0], [0, 0])):
        cluster = StillCluster([0, 0], resident=resident, stored=stored)
        for number in range(5):
            _decide(policy, _arrival(number), cluster)
        done = policy.anticipate([_due(policy, 100.0)], cluster, 100.0)
        for copy in done.copies:
            assert stored[int(copy.source[1:])] >= copy.prefix.blocks or any(
                copy.source == other.target for other in done.copies
            ), "a copy is from a replica that has it, or gets it"
            assert resident[int(copy.target[1:])] < copy.prefix.blocks, "who has it needs none"
            assert copy.chain == HOT[: copy.prefix.blocks], "the chain is that of the prefix"
        orders = [(keep.replica, keep.chain) for keep in done.keeps]
        for name, chain in orders + [(one.replica, one.chain) for one in done.computes]:
            assert name in cluster.replicas, "the replica is there"
            assert chain == HOT[: len(chain)], "the chain is that of the prefix"
        if any(stored):
            assert not done.computes, "what somebody has is moved"


CHECKS: tuple[Callable[[Make], None], ...] = (
    check_every_replica_is_ranked_once,
    check_a_prompt_that_is_unknown_is_served,
    check_copies_can_be_carried_out,
    check_nothing_is_copied_that_is_everywhere,
    check_the_same_seed_decides_the_same,
    check_the_cluster_is_only_looked_at,
    check_priorities_and_figures_are_finite,
    check_feedback_is_taken_in_any_order,
    check_replicas_may_come_and_go,
    check_what_is_done_ahead_can_be_carried_out,
)


def _arrival(number: int) -> Arrival:
    """Make the `number`-th request for the hot prefix, with a last block of its own."""
    chain = (*HOT, 10_000 + number)
    tokens = BLOCK_TOKENS * len(chain) + 3
    return Arrival(number * 0.1, chain, BLOCK_TOKENS, tokens, request_id=f"q{number}")


def _due(policy: Policy, at_s: float) -> Due:
    """Say that the hot prefix is due, with equal chances to come and not to come."""
    prefix = Prefix(HOT[-1], len(HOT), len(HOT) * BLOCK_TOKENS)
    counts: dict[float, Any] = {h: Counts(20.0, 1.0) for h in policy.horizons_s}
    chances = dict.fromkeys(policy.horizons_s, 0.5)
    return Due(Forecast(prefix, at_s, seen=80, counts=counts, returns=chances), HOT)


def _decide(
    policy: Policy, arrival: Arrival, cluster: StillCluster, expected: float = 0.0
) -> Decision:
    forecasts: Sequence[Forecast] = ()
    if policy.horizons_s and arrival.chain:
        prefix = Prefix(HOT[-1], len(HOT), len(HOT) * BLOCK_TOKENS)
        counts: dict[float, Any] = {h: Counts(expected, 1.0) for h in policy.horizons_s}
        forecasts = [Forecast(prefix, arrival.at_s, seen=5, counts=counts)]
    return policy.decide(replace(arrival), forecasts, cluster, arrival.at_s)
