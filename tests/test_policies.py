"""Policies against a cluster that stands still: 1 ms of prefill a token, 1 ms a block copied."""

from collections import Counter
from collections.abc import Sequence

import pytest

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from models.counts import Counts
from policies import POLICIES, make_policy
from policies.base import Chain, ClusterView, Policy
from policies.cost import ways
from policies.errors import PolicyError
from policies.order import Claims
from policies.routed import RoutedPrefixes
from policies.still import StillCluster
from policies.waiting import Work


def arrival(at_s: float = 0.0, first: int = 1, blocks: int = 300) -> Arrival:
    chain = tuple(range(first, first + blocks))
    return Arrival(at_s, chain, block_tokens=10, input_tokens=10 * blocks + 5)


def expecting(count: float, shown: Arrival, seen: int = 2) -> list[Forecast]:
    prefix = Prefix(shown.chain[-1], len(shown.chain), 10 * len(shown.chain))
    return [Forecast(prefix, shown.at_s, seen, {15.0: Counts(count)})]


def goes_to(policy: Policy, shown: Arrival, cluster: ClusterView) -> str:
    return policy.decide(shown, (), cluster, shown.at_s).ranked[0]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_ranks_every_replica_once(name: str) -> None:
    cluster = StillCluster([3, 1, 2], queue=[3.0, 1.0, 2.0], resident=[300, 0, 0])
    policy = make_policy(name, seed=1)
    for number in range(5):
        decision = policy.decide(arrival(number * 0.1), (), cluster, number * 0.1)
        assert sorted(decision.ranked) == ["r0", "r1", "r2"]


@pytest.mark.parametrize("name", POLICIES)
def test_a_copy_that_is_ordered_can_be_carried_out(name: str) -> None:
    cluster = StillCluster([9, 1, 2], queue=[9.0, 0.0, 0.0], resident=[300, 0, 0])
    policy = make_policy(name, seed=1)
    for number in range(5):
        shown = arrival(number * 0.1)
        decision = policy.decide(shown, expecting(50, shown), cluster, shown.at_s)
        for copy in decision.copies:
            assert copy.source == "r0"
            assert copy.target in ("r1", "r2")
            assert copy.chain == shown.chain[: copy.prefix.blocks]
            assert copy.size_bytes == copy.prefix.blocks * 1000
            assert copy.reason


def test_least_load_takes_the_lightest() -> None:
    assert goes_to(make_policy("least_load", seed=1), arrival(), StillCluster([4, 2, 3])) == "r1"


def test_equal_loads_are_spread_evenly() -> None:
    # smg#1714: equal loads must not always pick index 0.
    policy = make_policy("least_load", seed=1)
    picked = Counter(goes_to(policy, arrival(), StillCluster([0, 0, 0, 0])) for _ in range(400))
    assert set(picked) == {"r0", "r1", "r2", "r3"}
    assert max(picked.values()) < 150


def test_round_robin_takes_one_after_the_other() -> None:
    policy = make_policy("round_robin", seed=1)
    picked = [goes_to(policy, arrival(), StillCluster([0, 0, 0])) for _ in range(6)]
    assert picked[:3] == picked[3:]
    assert len(set(picked)) == 3


def test_cache_aware_learns_a_prefix_when_it_routes_it() -> None:
    policy = make_policy("cache_aware", seed=1)
    first = goes_to(policy, arrival(), StillCluster([0, 0, 0]))
    loads = [3 if name == first else 0 for name in ("r0", "r1", "r2")]
    assert goes_to(policy, arrival(), StillCluster(loads)) == first


def test_cache_aware_goes_to_the_lightest_when_out_of_balance() -> None:
    policy = make_policy("cache_aware", seed=1)
    first = goes_to(policy, arrival(), StillCluster([0, 0, 0]))
    loads = [65 if name == first else 0 for name in ("r0", "r1", "r2")]
    assert goes_to(policy, arrival(), StillCluster(loads)) != first
    # Both conditions are needed: 265 is more than 64 above 200, but less than 1.5 times it.
    loads = [265 if name == first else 200 for name in ("r0", "r1", "r2")]
    assert goes_to(make_policy("cache_aware", seed=1), arrival(), StillCluster([0, 0, 0])) == first
    again = make_policy("cache_aware", seed=1)
    goes_to(again, arrival(), StillCluster([0, 0, 0]))
    assert goes_to(again, arrival(), StillCluster(loads)) == first


def test_cache_aware_ignores_a_match_of_less_than_three_tenths() -> None:
    policy = make_policy("cache_aware", seed=1)
    short = Arrival(0.0, tuple(range(1, 31)), 10, 300)
    first = goes_to(policy, short, StillCluster([0, 0, 0]))
    loads = [1 if name == first else 0 for name in ("r0", "r1", "r2")]
    assert goes_to(policy, arrival(blocks=120), StillCluster(loads)) != first
    again = make_policy("cache_aware", seed=1)
    goes_to(again, short, StillCluster([0, 0, 0]))
    assert goes_to(again, arrival(blocks=90), StillCluster(loads)) == first


def test_a_cache_miss_goes_to_the_idle_replica_not_to_the_smallest_tree() -> None:
    # sgl#14305: the miss went to the replica with the smallest tree, however loaded.
    policy = make_policy("cache_aware", seed=1)
    for number in range(9):
        goes_to(policy, arrival(first=1000 * (number + 1)), StillCluster([0, 9]))
    assert goes_to(policy, arrival(first=99_000), StillCluster([0, 9])) == "r0"


def test_early_rdma_copies_at_the_second_arrival_within_a_second() -> None:
    cluster = StillCluster([2, 0, 1, 5], resident=[300, 0, 0, 0])
    policy = make_policy("early_rdma", seed=1)
    assert policy.decide(arrival(0.0), (), cluster, 0.0).copies == ()
    decision = policy.decide(arrival(0.9), (), cluster, 0.9)
    assert [copy.target for copy in decision.copies] == ["r1", "r2", "r3"]
    assert decision.ranked[0] == "r0"
    assert all(copy.prefix.blocks == 256 for copy in decision.copies)


def test_early_rdma_forgets_after_its_window() -> None:
    cluster = StillCluster([2, 0], resident=[300, 0])
    policy = make_policy("early_rdma", seed=1)
    policy.decide(arrival(0.0), (), cluster, 0.0)
    assert policy.decide(arrival(1.1), (), cluster, 1.1).copies == ()


def test_early_rdma_does_not_order_again_what_is_on_its_way() -> None:
    cluster = StillCluster([2, 0], resident=[300, 0], coming=[(0, 0.0), (256, 0.1)])
    policy = make_policy("early_rdma", seed=1)
    policy.decide(arrival(0.0), (), cluster, 0.0)
    assert policy.decide(arrival(0.5), (), cluster, 0.5).copies == ()


def test_early_rdma_takes_its_constants() -> None:
    cluster = StillCluster([2, 0, 1, 5], resident=[300, 0, 0, 0])
    policy = make_policy("early_rdma", seed=1, threshold=3, copies="2", prefix_blocks=100)
    for at_s in (0.0, 0.1):
        assert policy.decide(arrival(at_s), (), cluster, at_s).copies == ()
    copies = policy.decide(arrival(0.2), (), cluster, 0.2).copies
    assert [(copy.target, copy.prefix.blocks) for copy in copies] == [("r1", 100)]


def test_kv_cost_weighs_what_is_held_against_what_is_queued() -> None:
    # 300 blocks of prompt; r0 holds them all but has 2 s, about 200 blocks, queued.
    cluster = StillCluster([1, 0], queue=[2.0, 0.0], resident=[300, 0])
    assert goes_to(make_policy("kv_cost", seed=1), arrival(), cluster) == "r1"
    assert goes_to(make_policy("kv_cost", seed=1, overlap_weight=4.0), arrival(), cluster) == "r0"


def test_ways_know_what_is_held_under_way_and_worth_fetching() -> None:
    # 3,005 tokens: 3.005 s to compute, 0.005 s if the 300 blocks are there, 0.3 s to copy them.
    cluster = StillCluster(
        [0, 0, 0], queue=[5.0, 0.0, 0.0], resident=[300, 0, 0], coming=[(0, 0), (0, 0), (300, 0.2)]
    )
    found = ways(arrival(), cluster)
    assert [way.how for way in found] == ["held here", "copied from a peer", "under way here"]
    assert [way.ttft_s for way in found] == pytest.approx([5.005, 0.305, 0.205])
    assert found[1].source == 0


def test_who_fetches_its_kv_overtakes_unless_it_was_evicted_there() -> None:
    # 3.005 s of work to compute, 0.005 s after a copy. By priority r1 has 4 s ahead of the former
    # and nothing ahead of the latter; where the prefix was evicted, it counts as the former.
    class ByPriority(StillCluster):
        def queue_s(self, priorities: Sequence[float] | None = None) -> list[float]:
            return [4.0 if priority > 1.0 else 0.0 for priority in priorities or [9.0, 9.0]]

    claims = Claims([1, 1], 0.0)
    for stored, ttft_s, priority in (([300, 0], 0.305, 0.005), ([300, 300], 4.005, 3.005)):
        cluster = ByPriority([0, 0], resident=[300, 0], stored=stored, overtaken=[0, 0])
        way = ways(arrival(), cluster, claims=claims)[1]
        assert (way.ttft_s, way.priority) == pytest.approx((ttft_s, priority))


def test_nothing_is_copied_into_crowded_hbm_where_others_wait() -> None:
    class Full(StillCluster):
        def free_bytes(self) -> list[float]:
            return [0.0, 0.0, 0.0, 300_000.0]

    # 256 blocks, 0.256 MB, are with r0, which is busy.
    cluster = Full([9, 0, 1, 1], queue=[60.0, 0.0, 0.1, 0.1], resident=[256, 0, 0, 0])
    assert [way.source for way in ways(arrival(), cluster)] == [-1, 0, 0, 0]
    # r1 computes nothing, r3 has room; on r2 others wait for what would go.
    assert [way.source for way in ways(arrival(), cluster, crowded=True)] == [-1, 0, -1, 0]


def test_hbm_is_crowded_where_what_it_evicted_is_asked_for() -> None:
    work = Work()
    for number in range(300):
        work.arrive(evicted=number % 150 == 0)
    assert not work.crowded
    for number in range(30):
        work.arrive(evicted=number % 10 == 0)
    assert work.crowded  # 5 of 330
    work.pass_time(60.0)
    for _ in range(200):
        work.arrive(evicted=False)
    assert not work.crowded  # 1.8 of 321


def test_a_copy_evicts_at_what_compute_costs_now() -> None:
    class Full(StillCluster):
        def free_bytes(self) -> list[float]:
            return [0.0, 0.0]

    # To fetch it saves 3 s of waiting, and evicts what took 2.56 s to compute.
    cluster = Full([9, 0], queue=[3.0, 0.0], resident=[256, 0])
    policy = make_policy("btb", seed=1)
    assert policy.decide(arrival(blocks=256), (), cluster, 0.0).copies
    # 2.5 requests a second for each replica of late, and a mean queue of 1.5 s: about 3 times that.
    for number in range(240):
        policy.decide(arrival(number / 4, first=1000 * number, blocks=1), (), cluster, number / 4)
    assert not policy.decide(arrival(60.0, blocks=256), (), cluster, 60.0).copies


def test_of_equal_replicas_btb_takes_the_one_that_has_least() -> None:
    class Uneven(StillCluster):
        def free_bytes(self) -> list[float]:
            return [2e9, 1e9, 2e9, 3e9]

    policy = make_policy("btb", seed=1)
    assert goes_to(policy, arrival(), Uneven([0, 0, 0, 0])) == "r3"
    assert goes_to(policy, arrival(), Uneven([0, 0, 0, 1])) in ("r0", "r2")


def test_who_overtakes_the_one_that_computes_its_prefix_computes_for_both() -> None:
    # It is expected in 9 s, but this one would begin at once: 3 s of work, done once for both.
    cluster = StillCluster([1], queue=[0.0], coming=[(300, 9.0)])
    (way,) = ways(arrival(), cluster)
    assert way.how == "under way here"
    assert (way.ttft_s, way.work_s) == pytest.approx((3.005, 0.005))


def test_btb_fetches_a_prefix_whose_holder_is_busy() -> None:
    cluster = StillCluster([9, 0], queue=[5.0, 0.0], resident=[300, 0])
    decision = make_policy("btb", seed=1).decide(arrival(), (), cluster, 0.0)
    assert decision.ranked[0] == "r1"
    assert [(copy.source, copy.target) for copy in decision.copies] == [("r0", "r1")]
    assert decision.copies[0].value_s > 0.0


def test_btb_moves_nothing_when_the_holder_is_free() -> None:
    cluster = StillCluster([0, 0], resident=[300, 0])
    decision = make_policy("btb", seed=1).decide(arrival(), (), cluster, 0.0)
    assert decision.ranked[0] == "r0"
    assert decision.copies == ()


def test_btb_waits_for_a_prefix_that_is_being_computed() -> None:
    # vllm-project/router: eight equal cold prompts at once were prefilled on eight replicas.
    cluster = StillCluster([1, 0], queue=[2.9, 0.0], coming=[(300, 2.9), (0, 0.0)])
    shown = arrival()
    decision = make_policy("btb", seed=1).decide(shown, expecting(100, shown), cluster, 0.0)
    assert decision.reason in ("under way here", "copied from a peer")


def test_btb_keeps_a_replica_free_for_a_prefix_that_is_expected() -> None:
    # r0 holds a prefix that 100 more requests are expected for; r1 has 2 s queued. A cold prompt
    # of 3 s would start sooner on r0, but then the 100 would wait.
    hot, cold = arrival(), arrival(0.1, first=9000)
    policy = make_policy("btb", seed=1)
    before = StillCluster([0, 1], queue=[0.0, 2.0], resident=[300, 0])
    policy.decide(hot, expecting(100, hot), before, 0.0)

    class OnlyHot(StillCluster):
        def resident_blocks(self, chain: Chain) -> list[int]:
            return [len(chain), 0] if chain[0] == 1 else [0, 0]

    cluster = OnlyHot([0, 1], queue=[0.0, 2.0])
    assert policy.decide(cold, (), cluster, 0.1).ranked[0] == "r1"
    fresh = make_policy("btb", seed=1)
    assert fresh.decide(cold, (), cluster, 0.1).ranked[0] == "r0"


def test_btb_makes_a_second_copy_in_full_hbm_only_if_it_saves_more_than_it_evicts() -> None:
    # r0 holds the prefix and has 1 s queued; r1 would have it copied in 0.3 s. The KV that the
    # copy evicts there took 3 s to compute, and half of that is charged.
    class Full(StillCluster):
        def free_bytes(self) -> list[float]:
            return [0.0] * len(self.load)

    def to(view: type[StillCluster], queue_s: float) -> str:
        cluster = view([1, 0], queue=[queue_s, 0.0], resident=[300, 0])
        return goes_to(make_policy("btb", seed=1), arrival(), cluster)

    assert to(StillCluster, 1.0) == "r1"
    assert to(Full, 1.0) == "r0"
    assert to(Full, 3.0) == "r1"


def test_btb_copies_nothing_for_a_request_that_waits_longer_than_caches_last() -> None:
    cluster = StillCluster([9, 9], queue=[500.0, 400.0], resident=[300, 0])
    assert make_policy("btb", seed=1).decide(arrival(), (), cluster, 0.0).copies == ()


def test_an_unknown_policy_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(PolicyError, match="did you mean 'cache_aware'"):
        make_policy("cacheaware", seed=1)


def test_an_unknown_parameter_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(PolicyError, match="no parameter 'tresholds'; did you mean 'threshold'"):
        make_policy("early_rdma", seed=1, tresholds=3)


def test_a_parameter_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(PolicyError, match="copies must be int, got 'many'"):
        make_policy("early_rdma", seed=1, copies="many")


def test_a_policy_is_found_by_its_import_path() -> None:
    policy = make_policy("policies.fixed:LeastLoad", seed=1)
    assert goes_to(policy, arrival(), StillCluster([4, 2, 3])) == "r1"
    with pytest.raises(PolicyError, match="can't import 'nowhere'"):
        make_policy("nowhere:Policy", seed=1)
    with pytest.raises(PolicyError, match="has no 'Nothing'"):
        make_policy("policies.fixed:Nothing", seed=1)


def test_what_is_routed_is_remembered_within_a_bound() -> None:
    routed = RoutedPrefixes(max_blocks=1000)
    for number in range(100):
        routed.add(tuple(range(number * 100, number * 100 + 50)), "a")
        assert len(routed) <= 1050
    assert routed.longest(tuple(range(9900, 9950)), ["a", "b"]) == (50, [0])
    assert routed.longest(tuple(range(50)), ["a", "b"]) == (0, [])


def test_a_replica_that_is_gone_is_not_named() -> None:
    routed = RoutedPrefixes()
    routed.add((1, 2, 3), "gone")
    routed.add((1, 2), "here")
    assert routed.longest((1, 2, 3), ["here"]) == (2, [0])


def test_random_draws_from_what_it_was_given() -> None:
    def draws() -> list[str]:
        still = StillCluster([0] * 8)
        return [goes_to(make_policy("random", seed=s), arrival(), still) for s in range(40)]

    assert len(set(draws())) > 4
    assert draws() == draws()
