"""What is modelled after Mooncake and llm-d, against a cluster that stands still."""

import pytest

from forecasting.arrival import Arrival
from policies import make_policy
from policies.base import Decision, Policy
from policies.still import StillCluster


def arrival(at_s: float, own: int, shared: int = 300) -> Arrival:
    """Make a request of `shared` blocks of 10 tokens, and one of its own."""
    chain = (*range(1, shared + 1), 10_000 + own)
    return Arrival(at_s, chain, block_tokens=10, input_tokens=10 * len(chain))


def ask(
    policy: Policy, at_s: float, own: int, cluster: StillCluster, shared: int = 300
) -> Decision:
    return policy.decide(arrival(at_s, own, shared), (), cluster, at_s)


def test_heat_makes_a_second_copy_at_the_eighth_request_in_ten_seconds() -> None:
    policy = make_policy("mooncake_heat", seed=1)
    cluster = StillCluster([3, 2, 1], resident=[300, 0, 0])
    made = [ask(policy, 1.25 * number, number, cluster).copies for number in range(8)]
    assert made[:7] == [()] * 7
    (copy,) = made[7]
    assert (copy.source, copy.target, copy.prefix.blocks) == ("r0", "r2", 300)
    assert copy.size_bytes == 300 * cluster.block_bytes


def test_heat_copies_nothing_at_seven_requests_in_ten_seconds() -> None:
    policy = make_policy("mooncake_heat", seed=1)
    cluster = StillCluster([3, 2, 1], resident=[300, 0, 0])
    assert not any(ask(policy, 1.43 * n, n, cluster).copies for n in range(40))


def test_heat_is_content_with_two_copies_and_with_one_that_is_on_its_way() -> None:
    for cluster in (
        StillCluster([3, 2, 1], resident=[300, 300, 0]),
        StillCluster([3, 2, 1], resident=[300, 0, 0], coming=[(0, 0.0), (300, 0.1), (0, 0.0)]),
    ):
        policy = make_policy("mooncake_heat", seed=1)
        assert not any(ask(policy, 0.1 * n, n, cluster).copies for n in range(20))


def test_heat_rests_for_ten_seconds_before_it_copies_the_same_again() -> None:
    policy = make_policy("mooncake_heat", seed=1)
    cluster = StillCluster([3, 2, 1], resident=[300, 0, 0])  # whatever is copied is lost again
    copied_s = [n / 10 for n in range(300) if ask(policy, n / 10, n, cluster).copies]
    assert copied_s == pytest.approx([0.7, 10.7, 20.7])


def test_heat_copies_the_deepest_blocks_that_are_hot_and_no_others() -> None:
    policy = make_policy("mooncake_heat", seed=1)
    cluster = StillCluster([3, 2, 1], resident=[300, 0, 0])
    for number in range(4):
        ask(policy, 0.1 * number, number, cluster, shared=300)
    later = [ask(policy, 0.1 * n, n, cluster, shared=120).copies for n in range(4, 8)]
    depths = [copy.prefix.blocks for copies in later for copy in copies]
    assert depths == [120]


def test_heat_sends_requests_to_the_lightest_that_holds_the_prefix() -> None:
    policy = make_policy("mooncake_heat", seed=1)
    cluster = StillCluster([9, 4, 1], resident=[300, 300, 0])
    assert [ask(policy, 0.1 * n, n, cluster).ranked[0] for n in range(9)][-1] == "r1"


def test_who_comes_within_the_window_is_gathered_even_where_load_says_otherwise() -> None:
    policy = make_policy("llmd_burst", seed=1)
    first = ask(policy, 0.0, 0, StillCluster([0, 0, 0])).ranked[0]
    crowded = StillCluster([200 if name == first else 0 for name in ("r0", "r1", "r2")])
    assert ask(policy, 0.1, 1, crowded).ranked[0] == first
    assert ask(policy, 0.21, 2, crowded).ranked[0] != first  # too late, and out of balance


def test_other_prefixes_are_gathered_apart_and_short_prompts_not_at_all() -> None:
    policy = make_policy("llmd_burst", seed=1)
    first = ask(policy, 0.0, 0, StillCluster([0, 0, 0])).ranked[0]
    crowded = StillCluster([200 if name == first else 0 for name in ("r0", "r1", "r2")])
    other = Arrival(0.01, tuple(range(50_000, 50_300)), 10, 3000)
    assert policy.decide(other, (), crowded, 0.01).ranked[0] != first
    assert ask(policy, 0.02, 5, crowded, shared=100).ranked[0] != first


def test_a_full_group_makes_way_for_the_next_one() -> None:
    policy = make_policy("llmd_burst", seed=1, per_replica=2)
    first = ask(policy, 0.0, 0, StillCluster([0, 0, 0])).ranked[0]
    crowded = StillCluster([200 if name == first else 0 for name in ("r0", "r1", "r2")])
    picked = [ask(policy, 0.01, n, crowded).ranked[0] for n in range(1, 4)]
    assert picked[0] == first
    assert first not in picked[1:]


def test_a_group_whose_replica_is_gone_goes_elsewhere() -> None:
    policy = make_policy("llmd_burst", seed=1)
    assert ask(policy, 0.0, 0, StillCluster([1, 0])).ranked[0] == "r1"
    assert ask(policy, 0.05, 1, StillCluster([0])).ranked == ("r0",)
