"""The bound by hand, and against every policy: 1 ms of prefill a token, no attention."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btb.controller import Controller
from btb.simulation.bounds import _spans, lower_bound
from btb.simulation.causal import simulate_causal
from btb.simulation.setups import Gpu, Model, Setup
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from policies import POLICIES, make_policy

SETUP = Setup(
    "round_numbers",
    Model("m", 1e9, 1e9, 1.0, 1, 1, 1, attention_dim=0, kv_bytes=500.0, article_kv_bytes=500.0),
    Gpu("g", 4e12, 1.25e11, 1e9 + 5e6, host_bytes_s=2e6, rdma_bytes_s=1e6, disk_bytes_s=1e5),
    gpus_per_replica=1,
    replicas=2,
)


def request(at_s: float, *chain: int) -> Arrival:
    return Arrival(at_s, chain, 10, 10 * len(chain))


def test_what_is_shared_is_computed_once_and_the_last_token_always() -> None:
    # 30 tokens; then 10 of its own; then the same prompt again, whose last token is computed.
    window = [request(0.0, 1, 2, 3), request(1.0, 1, 2, 4), request(2.0, 1, 2, 4)]
    bound = lower_bound(SETUP, [window])
    assert bound.ttft_mean_s == pytest.approx((0.030 + 0.010 + 0.001) / 3)
    assert bound.ttft_p95_s == pytest.approx(0.030)


def test_a_crowd_is_bound_by_what_all_replicas_compute_together() -> None:
    # 20 prompts of 100 tokens at once on 2 replicas: two are done every 100 ms, so the mean is
    # 100 ms times (1 + 10) / 2. A policy that takes the replicas in turn does as well.
    window = [request(0.0, *range(100 * n, 100 * n + 10)) for n in range(20)]
    bound = lower_bound(SETUP, [window])
    assert bound.ttft_mean_s == pytest.approx(0.100 * 11 / 2)
    controller = Controller(make_policy("round_robin", seed=1), Forecaster({}))
    ttft_s = simulate_causal(SETUP, controller, window).ttft_s
    assert ttft_s.mean() == pytest.approx(bound.ttft_mean_s)
    assert bound.ttft_p95_s == pytest.approx(0.100)


def test_nobody_is_sooner_than_the_prefix_that_another_one_brought() -> None:
    # The first brings 10 blocks, which take 100 ms, and 1 of its own. The second comes after 20 ms
    # and waits for them 80 ms, then computes 1 of its own. The third has the first one's prompt,
    # which is there after 110 ms; it could compute its last token in the last of these.
    shared = range(10)
    window = [request(0.0, *shared, 90), request(0.02, *shared, 91), request(0.03, *shared, 90)]
    bound = lower_bound(SETUP, [window])
    assert bound.ttft_mean_s == pytest.approx((0.110 + 0.090 + 0.080) / 3)


def test_the_shortest_goes_first_and_gives_way_to_a_shorter_one() -> None:
    # One server twice as fast: 200 tokens take 0.1 s, from 0.03 s on interrupted by 40 that take
    # 0.02 s. By the mean time at which each is served, and half of its own work on one replica:
    spans_s = [(0.0, 0.03, 0), (0.03, 0.05, 1), (0.05, 0.12, 0)]
    for left_counts in (True, False):
        found = list(_spans(np.array([0.0, 0.03]), np.array([0.1, 0.02]), left_counts=left_counts))
        assert [span for one in found for span in one] == pytest.approx(
            [value for span in spans_s for value in span]
        )
    busy_s = (0.03 * 0.015 + 0.07 * 0.085) / 0.1 + 0.1, (0.04 - 0.03) + 0.02
    window = [request(0.0, *range(20)), request(0.03, *range(100, 104))]
    own_s = 0.2 + 0.04
    assert lower_bound(SETUP, [window]).ttft_mean_s == pytest.approx(max(sum(busy_s), own_s) / 2)


def test_what_has_least_left_may_not_be_what_is_shortest() -> None:
    # After 0.8 s of 1 s a job of 0.5 s comes: 0.2 s are left of the first.
    released_s, works_s = np.array([0.0, 0.8]), np.array([1.0, 0.5])
    left = [job for _, _, job in _spans(released_s, works_s, left_counts=True)]
    short = [job for _, _, job in _spans(released_s, works_s, left_counts=False)]
    assert left == [0, 0, 1]
    assert short == [0, 1, 0]


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None)
@given(
    drawn=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.01, 0.1]), st.lists(st.integers(0, 2), min_size=1, max_size=6)
        ),
        min_size=1,
        max_size=25,
    )
)
def test_no_policy_gets_below_it(name: str, drawn: list[tuple[float, list[int]]]) -> None:
    hashes: dict[tuple[int, ...], int] = {}
    at_s, window = 0.0, []
    for gap_s, word in drawn:
        at_s += gap_s
        prefixes = [tuple(word[: depth + 1]) for depth in range(len(word))]
        window.append(request(at_s, *(hashes.setdefault(one, len(hashes)) for one in prefixes)))
    result = simulate_causal(SETUP, Controller(make_policy(name, seed=1), Forecaster({})), window)
    bound = lower_bound(SETUP, [window])
    assert result.ttft_s.mean() >= bound.ttft_mean_s - 1e-9
    assert np.sort(result.ttft_s)[int(0.95 * len(window))] >= bound.ttft_p95_s - 1e-9
