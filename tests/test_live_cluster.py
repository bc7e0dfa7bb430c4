"""What the service believes of its replicas, by hand-computed figures."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from btb.service.cluster import LiveCluster
from btb.service.outstanding import Outstanding
from btb.service.replica import Placement
from btb.service.residency import Residency
from btb.simulation.setups import SETUPS
from forecasting.arrival import Arrival
from forecasting.forecast import Prefix
from policies.base import ClusterView, Copy

SETUP = SETUPS["70b_h100x4"]
BLOCK = 512
CHAIN = tuple(range(1, 17))  # 8,192 tokens
PREFILL_S = SETUP.prefill_s(8192, 0)


def request(number: int = 1, chain: tuple[int, ...] = CHAIN, tokens: int = 8192) -> Arrival:
    return Arrival(0.0, chain, BLOCK, tokens, output_tokens=100, request_id=str(number))


def cluster(*names: str) -> LiveCluster:
    made = LiveCluster(SETUP)
    for name in names:
        made.add(name)
    return made


def copy(target: str = "b", source: str = "a", deadline_s: float = 0.0) -> Copy:
    prefix = Prefix(CHAIN[-1], len(CHAIN), 8192)
    return Copy(prefix, CHAIN, source, target, 8192, deadline_s, 1.0, 0.1, "for a test")


def test_a_view_is_what_policies_expect() -> None:
    view: ClusterView = cluster("a", "b").view(0.0, BLOCK)
    assert list(view.replicas) == ["a", "b"]
    assert view.block_bytes == 512 * 320 * 1024
    assert view.prefill_s(8192, 0) == PREFILL_S
    assert view.load_s(0, CHAIN) == 0.0
    assert list(view.free_bytes()) == [SETUP.kv_capacity_bytes] * 2


def test_a_routed_prefix_is_pending_for_its_prefill_and_resident_after() -> None:
    live = cluster("a", "b")
    placement = live.place(request(), "a", now_s=10.0)
    assert placement.ready_s == pytest.approx(10.0 + PREFILL_S)
    early = live.view(10.1, BLOCK)
    assert early.resident_blocks(CHAIN) == [0, 0]
    assert early.pending(CHAIN) == [(16, pytest.approx(PREFILL_S - 0.1)), (0, 0.0)]
    assert early.queue_s() == [pytest.approx(PREFILL_S - 0.1), 0.0]
    late = live.view(10.0 + PREFILL_S, BLOCK)
    assert late.resident_blocks(CHAIN) == late.stored_blocks(CHAIN) == [16, 0]
    assert late.resident_blocks((*CHAIN[:5], 99)) == [5, 0]
    assert late.pending(CHAIN) == [(0, 0.0), (0, 0.0)]


def test_a_second_request_for_a_pending_prefix_waits_for_it_and_computes_its_rest() -> None:
    live = cluster("a")
    live.place(request(), "a", now_s=0.0)
    second = live.place(request(2, (*CHAIN, 99), 8704), "a", now_s=0.1)
    assert second.hit_tokens == 8192
    assert second.ready_s == pytest.approx(PREFILL_S + SETUP.prefill_s(512, 8192))


def test_even_a_whole_hit_computes_one_token() -> None:
    live = cluster("a")
    live.place(request(), "a", now_s=0.0)
    assert live.place(request(2), "a", now_s=5.0).hit_tokens == 8191


def test_a_measured_first_token_moves_the_queue_and_makes_the_prefix_resident() -> None:
    live = cluster("a")
    first = live.place(request(), "a", now_s=0.0)
    live.place(request(2, (50, 51)), "a", now_s=0.0)
    expected_s = live.view(0.0, BLOCK).queue_s()[0]
    live.first_token(first, at_s=PREFILL_S + 0.5)
    assert live.view(0.0, BLOCK).queue_s() == [pytest.approx(expected_s + 0.5)]
    early = live.place(request(3, (70, 71)), "a", now_s=2.0)
    live.first_token(early, at_s=2.01)
    assert live.view(2.01, BLOCK).resident_blocks((70, 71)) == [2]


def test_one_delay_is_not_counted_twice() -> None:
    live = cluster("a")
    placed = [live.place(request(n, (100 + n,), 8192), "a", now_s=0.0) for n in range(3)]
    for number, placement in enumerate(placed[:2], start=1):
        live.first_token(placement, at_s=1.0 + number * PREFILL_S)
    assert live.view(0.0, BLOCK).queue_s() == [pytest.approx(1.0 + 3 * PREFILL_S)]


def test_a_second_first_token_of_one_request_changes_nothing() -> None:
    live = cluster("a")
    placement = live.place(request(), "a", now_s=0.0)
    live.first_token(placement, at_s=1.0)
    before = live.view(0.0, BLOCK).queue_s()
    live.first_token(placement, at_s=5.0)
    assert live.view(0.0, BLOCK).queue_s() == before


def test_a_request_that_ran_elsewhere_leaves_its_prefix_there() -> None:
    live = cluster("a", "b")
    placement = live.place(request(), "a", now_s=0.0)
    live.first_token(placement, at_s=0.2, name="b")
    assert live.view(0.2, BLOCK).resident_blocks(CHAIN) == [0, 16]


def test_reported_requests_count_beside_those_sent_from_here() -> None:
    live = cluster("a")
    live.place(request(1), "a", now_s=0.0)
    live.add("a").take_report(requests=10, free_bytes=None)
    assert live.view(0.0, BLOCK).loads() == [10]
    placement = live.place(request(2), "a", now_s=0.0)
    assert live.view(0.0, BLOCK).loads() == [11]
    placement.replica.end(placement)
    assert live.view(0.0, BLOCK).loads() == [10]
    live.add("a").take_report(requests=0, free_bytes=None)  # it has not seen ours yet
    assert live.view(0.0, BLOCK).loads() == [1]


def test_reported_free_memory_shrinks_by_what_is_sent_since() -> None:
    live = cluster("a")
    live.add("a").take_report(requests=None, free_bytes=50e9)
    assert live.view(0.0, BLOCK).free_bytes() == [50e9]
    live.place(request(), "a", now_s=0.0)
    kv_bytes = (8192 + 100) * SETUP.kv_token_bytes
    assert live.view(0.0, BLOCK).free_bytes() == [pytest.approx(50e9 - kv_bytes)]


def test_a_removed_replica_is_gone_from_views_and_its_requests_can_still_end() -> None:
    live = cluster("a", "b")
    placement = live.place(request(), "a", now_s=0.0)
    live.orders.place([copy()], now_s=0.0, block_tokens=BLOCK)
    assert live.remove("a") is placement.replica
    assert live.remove("a") is None
    assert len(live.orders) == 0
    live.add("a")
    live.first_token(placement, at_s=1.0)
    placement.replica.end(placement)
    view = live.view(1.0, BLOCK)
    assert list(view.replicas) == ["b", "a"]
    assert view.loads() == [0, 0]
    assert view.resident_blocks(CHAIN) == [0, 0]


def test_a_smaller_setup_keeps_less() -> None:
    live = cluster("a")
    live.place(request(), "a", now_s=0.0)
    tiny = replace(SETUP, gpu=replace(SETUP.gpu, hbm_bytes=35.4e9))  # 0.4 GB for KV: 2 blocks
    live.add("a", tiny)
    assert live.view(10.0, BLOCK).resident_blocks(CHAIN) == [2]


def test_a_copy_is_ordered_once_until_its_time_is_over() -> None:
    orders = cluster("a", "b").orders
    first = orders.place([copy()], now_s=0.0, block_tokens=BLOCK)
    assert [one.copy_id for one in first] == ["c1"]
    assert orders.place([copy()], now_s=1.0, block_tokens=BLOCK) == []
    assert [one.copy_id for one in orders.place([copy()], now_s=61.0, block_tokens=BLOCK)] == ["c2"]
    assert len(orders) == 1
    assert orders.expire(now_s=200.0) == 1


def test_a_copy_that_is_late_for_its_request_still_counts_when_it_is_done() -> None:
    live = cluster("a", "b")
    (order,) = live.orders.place([copy(deadline_s=0.5)], now_s=0.0, block_tokens=BLOCK)
    assert live.orders.expire(now_s=2.0) == 0
    assert live.copy_done(order.copy_id, now_s=2.0) is order
    assert live.view(2.0, BLOCK).resident_blocks(CHAIN) == [0, 16]


def test_a_copy_is_resident_once_it_is_said_to_be_done_and_not_before() -> None:
    live = cluster("a", "b")
    (order,) = live.orders.place([copy()], now_s=0.0, block_tokens=BLOCK)
    assert live.view(1.0, BLOCK).pending(CHAIN) == [(0, 0.0), (0, 0.0)]
    assert live.copy_done(order.copy_id, now_s=1.0) is order
    assert live.view(1.0, BLOCK).resident_blocks(CHAIN) == [0, 16]
    assert live.copy_done(order.copy_id, now_s=1.0) is None


def test_copies_on_one_link_share_it() -> None:
    live = cluster("a", "b", "c")
    alone_s = live.view(0.0, BLOCK).copy_s(0, 2, 1e9)
    assert alone_s == pytest.approx(1e9 / 200e9)
    live.orders.place([copy(target="b")], now_s=0.0, block_tokens=BLOCK)
    view = live.view(0.0, BLOCK)
    assert view.copy_s(0, 2, 1e9) == pytest.approx(2 * alone_s)
    assert view.copy_s(2, 0, 1e9) == pytest.approx(alone_s)


def test_copies_take_forever_where_nobody_makes_them() -> None:
    live = LiveCluster(SETUP, copies=False)
    live.add("a")
    live.add("b")
    assert live.view(0.0, BLOCK).copy_s(0, 1, 1.0) == float("inf")


def test_a_chain_too_long_for_a_replica_is_kept_from_its_beginning() -> None:
    held = Residency(capacity_bytes=10.0)
    held.add(tuple(range(1, 16)), block_bytes=1, ready_s=0.0)
    assert held.resident(tuple(range(1, 16)), now_s=0.0) == 10


def test_prefixes_go_from_their_tails_and_least_recently_used_first() -> None:
    held = Residency(capacity_bytes=6.0)
    held.add((1, 2, 3), block_bytes=1, ready_s=0.0)
    held.add((7, 8, 9), block_bytes=1, ready_s=0.0)
    held.add((1, 2, 4), block_bytes=1, ready_s=0.0)
    assert held.resident((7, 8, 9), now_s=0.0) == 3
    assert held.resident((1, 2, 3), now_s=0.0) == 2  # block 3 was the oldest, and a tail
    assert held.resident((1, 2, 4), now_s=0.0) == 3


chains = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=6).map(
        lambda steps: tuple(hash(tuple(steps[: n + 1])) for n in range(len(steps)))
    ),
    min_size=1,
    max_size=30,
)


@given(chains=chains, capacity=st.integers(1, 12))
def test_a_block_is_never_kept_without_those_before_it(
    chains: list[tuple[int, ...]], capacity: int
) -> None:
    held = Residency(capacity_bytes=float(capacity))
    for at_s, chain in enumerate(chains):
        held.add(chain, block_bytes=1, ready_s=float(at_s))
        assert held.held_bytes == len(held) <= capacity
    for chain in chains:
        here = [held.resident(chain[: n + 1], now_s=1e9) == n + 1 for n in range(len(chain))]
        assert here == sorted(here, reverse=True)


def test_outstanding_requests_end_by_outcome_time_or_room() -> None:
    live = cluster("a")
    causes: list[str] = []
    under_way = Outstanding(limit=2, timeout_s=60.0, released=causes.append)

    def place(number: int, now_s: float) -> Placement:
        placement = live.place(request(number), "a", now_s=now_s)
        under_way.add(("", str(number)), placement)
        return placement

    place(1, 0.0)
    place(2, 1.0)
    place(2, 2.0)  # sent again
    place(3, 3.0)
    assert causes == ["replaced", "crowded_out"]
    under_way.expire(now_s=62.0)
    assert len(under_way) == 2
    under_way.expire(now_s=62.5)
    assert causes[2:] == ["timeout"]
    under_way.release(("", "3"), "finished")
    assert len(under_way) == 0
    assert live.view(63.0, BLOCK).loads() == [0]
