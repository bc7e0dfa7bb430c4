"""What is done ahead of requests, on a cluster that stands still: a token takes 1 ms to compute.

Blocks are of 10 tokens and 1,000 bytes: 100 blocks take 1 s to compute, 0.1 s to copy from a peer
(1 s a MB) and 0.05 s to bring up from RAM.
"""

from dataclasses import replace
from random import Random

import pytest

from btb.controller import Controller
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from forecasting.forecaster import Forecaster
from models import make_models
from models.counts import Counts
from policies import make_policy
from policies.base import ClusterView, Copy, Due, Foresight
from policies.btb import Btb
from policies.fixed import LeastLoad
from policies.placing import Burst, Prices, bring, compute, holders, spread
from policies.still import StillCluster
from policies.waiting import Work, mean_wait_s

CHAIN = tuple(range(1, 101))
PRICES = Prices(link=0.5, evict=0.5)
BURST = Burst(CHAIN, 10, own_tokens=100, chance=0.5, requests=40.0, rate_rps=4.0)


class Full(StillCluster):
    """No HBM is free."""

    def free_bytes(self) -> list[float]:
        return [0.0] * len(self.load)


def test_a_prefix_is_brought_up_from_the_ram_of_its_replica() -> None:
    copy = bring(BURST, StillCluster([0, 0], stored=[0, 100]), PRICES, now_s=7.0)
    assert copy is not None
    assert (copy.source, copy.target) == ("r1", "r1")
    assert (copy.prefix.blocks, copy.chain, copy.size_bytes) == (100, CHAIN, 100_000)
    # Half the time the first request, and part of those in the next 0.05 s, would wait for it.
    assert copy.value_s == pytest.approx(0.5 * 0.05 * (1 + 4.0 * 0.05 / 2))
    assert copy.cost_s == pytest.approx(0.05)


def test_a_full_replica_is_avoided_where_a_copy_costs_less_than_what_goes() -> None:
    class FullHolder(StillCluster):
        def free_bytes(self) -> list[float]:
            return [1e9, 0.0]

    cluster = FullHolder([0, 0], stored=[0, 100])
    # Here: 0.05 s of link and 0.05 s to have back what goes, at 0.5. There: 0.1 s of link at 0.5.
    copy = bring(BURST, cluster, PRICES, now_s=0.0)
    assert copy is not None
    assert (copy.source, copy.target) in (("r1", "r0"), ("r1", "r1"))
    dear = bring(BURST, cluster, replace(PRICES, evict=2.0), now_s=0.0)
    assert dear is not None
    assert (dear.source, dear.target) == ("r1", "r0")


@pytest.mark.parametrize(("chance", "brought"), [(0.45, False), (0.55, True)])
def test_what_is_unlikely_to_be_used_is_left_where_it_is(chance: float, brought: bool) -> None:
    # With evictions priced as much as moves, it pays from a chance of about a half.
    burst = replace(BURST, chance=chance, rate_rps=1e-3)
    found = bring(burst, Full([0, 0], stored=[0, 100]), PRICES, now_s=0.0)
    assert (found is not None) == brought


def test_what_nobody_has_is_not_brought_but_computed_where_nothing_runs() -> None:
    cluster = StillCluster([2, 0])
    assert bring(BURST, cluster, PRICES, now_s=0.0) is None
    (order,) = compute(BURST, cluster)
    assert (order.replica, order.chain) == ("r1", CHAIN)
    assert compute(BURST, StillCluster([2, 1])) == []
    assert compute(replace(BURST, chance=0.05), cluster) == []


def test_as_many_replicas_hold_it_as_its_burst_needs() -> None:
    # Each request takes 0.1 s, so 30 a second keep three replicas busy.
    cluster, busy = StillCluster([0, 0, 0, 0], resident=[100, 0, 0, 0]), Work()
    burst = replace(BURST, chance=1.0, requests=300.0)
    calm = replace(burst, requests=30.0, rate_rps=0.1)
    few = spread(calm, [0], busy, cluster, PRICES, now_s=0.0)
    many = spread(replace(burst, rate_rps=30.0), [0], busy, cluster, PRICES, now_s=0.0)
    assert (len(few), len(many)) == (0, 3)
    assert {copy.source for copy in many} == {"r0"}
    assert [copy.target for copy in many] == ["r1", "r2", "r3"]
    assert all(copy.value_s > copy.cost_s / 2 for copy in many)


def test_a_copy_is_worth_what_it_saves_those_who_come_after_it() -> None:
    # Ten seconds of requests, 1.1 times what one replica can serve; two wait for next to nothing.
    burst = replace(BURST, chance=1.0, requests=110.0, rate_rps=11.0)
    one_s, two_s = (mean_wait_s(k, 1.1 / k, 0.05, 10.0) for k in (1, 2))

    def copies(block_bytes: int, begins_s: float = 0.0) -> list[Copy]:
        cluster = StillCluster([0, 0], resident=[100, 0], block_bytes=block_bytes, overtaken=[0, 0])
        later = replace(burst, begins_s=begins_s)
        return spread(later, [0], Work(), cluster, PRICES, now_s=0.0)

    (halfway,) = copies(50_000)  # 5 s to copy
    assert halfway.value_s == pytest.approx(55 * (one_s - two_s))
    assert copies(110_000) == []  # 11 s: all are over by then
    (ahead,) = copies(110_000, begins_s=6.0)
    assert ahead.value_s == pytest.approx(55 * (one_s - two_s))


def test_nothing_is_spread_to_where_something_else_would_have_to_go() -> None:
    burst = replace(BURST, chance=1.0, requests=300.0, rate_rps=30.0)
    assert spread(burst, [0], Work(), Full([0, 0], resident=[100, 0]), PRICES, now_s=0.0) == []


def test_those_who_will_hold_it_count_as_holders() -> None:
    cluster = StillCluster([0, 0, 0], resident=[100, 40, 0], coming=[(0, 0), (100, 2.0), (90, 1.0)])
    assert holders(CHAIN, cluster) == [0, 1]


def test_one_server_waits_as_pollaczek_and_khinchine_say_and_two_wait_less() -> None:
    # 0.8 / 0.2 times what is left on average of the work that is found.
    assert mean_wait_s(1, 0.8, left_s=0.5, span_s=10.0) == pytest.approx(0.8 / 0.2 * 0.5)
    assert mean_wait_s(2, 0.8, 0.5, 10.0) < mean_wait_s(1, 0.8, 0.5, 10.0) / 2
    # 1.5 times what one can serve for 10 s: at the end 5 s of work are left, 2.5 s on average.
    overloaded_s = mean_wait_s(1, 1.45, 0.0, 10.0)
    assert overloaded_s == pytest.approx((1.45 - 0.95) * 10.0 / 2)


def expected(chance: float, mean: float) -> Due:
    prefix = Prefix(CHAIN[-1], 100, 1000)
    counts, returns = {15.0: Counts(mean)}, {15.0: chance}
    return Due(Forecast(prefix, 100.0, 80, counts, returns), CHAIN)


def shown_to(policy: Btb, cluster: ClusterView, requests: int = 3) -> None:
    """Let `policy` see requests with 10 tokens beside the prefix."""
    prefix = Prefix(CHAIN[-1], 100, 1000)
    for number in range(requests):
        at_s = float(number)
        arrival = Arrival(at_s, (*CHAIN, 900 + number), 10, 1010, request_id=str(number))
        forecast = Forecast(prefix, at_s, number + 1, {15.0: Counts(0.5)})
        policy.decide(arrival, [forecast], cluster, at_s)


def test_a_prefix_that_is_due_is_brought_and_kept() -> None:
    policy = Btb(Random(1))
    shown_to(policy, StillCluster([0, 0], resident=[100, 100]))
    done = policy.anticipate([expected(0.5, 2.0)], StillCluster([0, 0], stored=[0, 100]), 100.0)
    assert [(copy.source, copy.target) for copy in done.copies] == [("r1", "r1")]
    assert [(keep.replica, keep.chain) for keep in done.keeps] == [("r1", CHAIN)]
    assert done.keeps[0].until_s > 105.0  # it is asked again in five seconds
    held = policy.anticipate([expected(0.5, 2.0)], StillCluster([0, 0], resident=[100, 0]), 105.0)
    assert held.copies == ()
    assert [keep.replica for keep in held.keeps] == ["r0"]


def test_nothing_is_computed_ahead_unless_that_is_asked_for() -> None:
    for asked in (False, True):
        policy = make_policy("btb", seed=1, speculative_prefill=asked)
        assert isinstance(policy, Btb)
        shown_to(policy, StillCluster([0, 0]))
        done = policy.anticipate([expected(0.5, 20.0)], StillCluster([0, 0]), 100.0)
        assert len(done.computes) == asked


def test_nothing_is_done_for_a_prefix_without_a_chance_or_never_seen() -> None:
    policy = Btb(Random(1))
    cluster = StillCluster([0, 0], stored=[0, 100])
    assert policy.anticipate([expected(0.5, 20.0)], cluster, 100.0) == Foresight()
    shown_to(policy, StillCluster([0, 0]))
    assert policy.anticipate([expected(0.0, 20.0)], cluster, 100.0) == Foresight()
    assert policy.anticipate([], cluster, 100.0) == Foresight()


def test_followers_of_a_request_find_the_prefix_elsewhere_too() -> None:
    # 300 more are expected in 15 s, 0.05 s of work each: more than r0 can serve.
    policy = Btb(Random(1))
    cluster = StillCluster([0, 0, 0], resident=[100, 0, 0])
    shown = Arrival(0.0, (*CHAIN, 900), 10, 1050, request_id="a")
    forecast = Forecast(Prefix(CHAIN[-1], 100, 1000), 0.0, 5, {15.0: Counts(600.0)})
    decision = policy.decide(shown, [forecast], cluster, 0.0)
    assert decision.ranked[0] == "r0"
    assert {copy.target for copy in decision.copies} == {"r1", "r2"}
    again = replace(shown, at_s=0.5, request_id="b")
    assert policy.decide(again, [forecast], cluster, 0.5).copies == ()


def test_the_controller_asks_only_those_who_look_ahead() -> None:
    cluster = StillCluster([0, 0])
    assert not Controller(LeastLoad(Random(1)), Forecaster({})).anticipates
    still = Controller(make_policy("btb", seed=1, lead_s=0.0), Forecaster({}))
    assert not still.anticipates
    assert still.tick(10.0, cluster) == Foresight()


def test_a_job_that_returns_is_in_hbm_before_its_next_run() -> None:
    # Every ten minutes 10 requests; by the fourth run it is known when they come.
    policy = make_policy("btb", seed=1)
    controller = Controller(policy, Forecaster(make_models("ewma", [15.0]), boundary_tokens=1000))
    asked = StillCluster([0, 0])
    for run in range(4):
        for number in range(10):
            name = f"{run}-{number}"
            chain = (*CHAIN, 1000 + 10 * run + number)
            at_s = 600.0 * run + number
            controller.on_arrival(Arrival(at_s, chain, 10, 1010, request_id=name), asked)
    in_ram = StillCluster([0, 0], stored=[0, 100])
    assert controller.tick(2100.0, in_ram) == Foresight()
    done = controller.tick(2395.0, in_ram)
    assert [(copy.chain, copy.target) for copy in done.copies] == [(CHAIN, "r1")]
