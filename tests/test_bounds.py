"""The bound by hand, and against every policy: 1 ms of prefill a token, no attention."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btb.controller import Controller
from btb.simulation.bounds import lower_bound
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
    # 20 prompts of 100 tokens at once on 2 replicas: one server twice as fast has one done every
    # 50 ms, so the mean is 50 ms times (1 + 20) / 2.
    window = [request(0.0, *range(100 * n, 100 * n + 10)) for n in range(20)]
    bound = lower_bound(SETUP, [window])
    assert bound.ttft_mean_s == pytest.approx(0.050 * 21 / 2)
    assert bound.ttft_p95_s == pytest.approx(0.100)


def test_the_shortest_goes_first_and_gives_way_to_a_shorter_one() -> None:
    # Twice as fast: 200 tokens take 0.1 s, from 0.03 s on interrupted by 40 that take 0.02 s.
    window = [request(0.0, *range(20)), request(0.03, *range(100, 104))]
    pooled = (0.12 + 0.02) / 2
    own = (0.2 + 0.04) / 2
    assert lower_bound(SETUP, [window]).ttft_mean_s == pytest.approx(max(pooled, own))


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
    assert result.ttft_s.mean() >= lower_bound(SETUP, [window]).ttft_mean_s - 1e-9
