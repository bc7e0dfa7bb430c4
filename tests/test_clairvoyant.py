"""Exact forecasts against a count by hand, and what is found with all arrivals known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btb.controller import Controller
from btb.simulation.bounds import lower_bound
from btb.simulation.causal import simulate_causal
from btb.simulation.clairvoyant import CANDIDATES, Avoiding, simulate_clairvoyant
from btb.simulation.oracle import Oracle
from btb.simulation.setups import SETUPS
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from models import make_models
from models.base import HORIZONS_S
from policies import make_policy
from policies.still import StillCluster

SETUP = SETUPS["70b_h100x4"]


def request(at_s: float, *chain: int) -> Arrival:
    return Arrival(at_s, chain, 1024, 1024 * len(chain))


def burst(start_s: float, prefix: int, count: int, gap_s: float = 0.1) -> list[Arrival]:
    """Make requests with 32 shared blocks and one of their own."""
    shared = range(100 * prefix, 100 * prefix + 32)
    return [
        request(start_s + gap_s * number, *shared, 10**6 * prefix + round(10 * start_s) + number)
        for number in range(count)
    ]


def spelt(drawn: list[tuple[float, list[int]]]) -> list[Arrival]:
    """Make a window of gaps and words: words that begin alike share blocks."""
    hashes: dict[tuple[int, ...], int] = {}
    at_s, window = 0.0, []
    for gap_s, word in drawn:
        at_s += gap_s
        prefixes = [tuple(word[: depth + 1]) for depth in range(len(word))]
        window.append(request(at_s, *(hashes.setdefault(one, len(hashes)) for one in prefixes)))
    return window


windows = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.4, 3.0, 20.0]), st.lists(st.integers(0, 2), min_size=1, max_size=5)
    ),
    min_size=1,
    max_size=30,
)


@given(windows)
def test_forecasts_are_what_comes(drawn: list[tuple[float, list[int]]]) -> None:
    window = spelt(drawn)
    oracle = Oracle(window)
    for index, arrival in enumerate(window):
        oracle.observe(arrival)
        for forecast in oracle.forecast_path(arrival):
            key, blocks = forecast.prefix.key, forecast.prefix.blocks
            assert arrival.chain[blocks - 1] == key
            assert forecast.prefix.tokens == 1024 * blocks >= 2048
            assert oracle.chain(key) == arrival.chain[:blocks]
            sharing = [key in other.chain for other in window]
            assert forecast.seen == sum(sharing[: index + 1])
            for horizon_s in HORIZONS_S:
                until_s = arrival.at_s + horizon_s
                later = [one for one in window[index + 1 :] if one.at_s <= until_s]
                assert forecast.mean(horizon_s) == sum(key in one.chain for one in later)


def test_the_first_request_of_a_burst_has_a_forecast_for_what_others_will_share() -> None:
    window = burst(0.0, 1, 5)
    oracle = Oracle(window)
    oracle.observe(window[0])
    deepest = oracle.forecast_path(window[0])[-1]
    assert (deepest.prefix.blocks, deepest.mean(1.0), deepest.seen) == (32, 4.0, 1)


def test_only_bursts_that_come_back_are_due() -> None:
    window = sorted(
        [*burst(0.0, 1, 5), *burst(100.0, 1, 5), *burst(103.0, 2, 5)], key=lambda one: one.at_s
    )
    oracle = Oracle(window)
    for arrival in window[:5]:
        oracle.observe(arrival)
    assert oracle.due(84.0, 15.0) == []
    (due,) = oracle.due(86.0, 15.0)
    assert due.prefix.key == window[0].chain[31]
    assert due.returns == {1.0: 0.0, 5.0: 0.0, 15.0: 1.0, 60.0: 1.0}
    assert due.counts[15.0].mean == 5.0
    assert oracle.due(100.0, 15.0) == []  # it has begun


def test_a_request_that_must_not_go_somewhere_goes_elsewhere_and_the_next_one_may() -> None:
    policy = Avoiding(make_policy("least_load", seed=1), {"q": "r1"})
    cluster = StillCluster([1, 0])
    arrival = replace(request(0.0, 1), request_id="q")
    assert policy.decide(arrival, (), cluster, 0.0).ranked[0] == "r0"
    other = replace(arrival, request_id="other")
    assert policy.decide(other, (), cluster, 0.0).ranked[0] == "r1"


WINDOW = sorted(
    [*burst(0.0, 1, 40), *burst(2.0, 2, 40), *burst(50.0, 1, 40), *burst(3.0, 3, 1)],
    key=lambda one: one.at_s,
)


@pytest.fixture(scope="module")
def found_s() -> float:
    return float(simulate_clairvoyant(SETUP, WINDOW, seed=1).ttft_s.mean())


def test_it_is_between_the_bound_and_the_policies_that_know_less(found_s: float) -> None:
    assert found_s >= lower_bound(SETUP, [WINDOW]).ttft_mean_s
    for name, given_, model in CANDIDATES:
        policy = make_policy(name, seed=1, **given_)
        forecaster = Forecaster(make_models(model or "ewma", policy.horizons_s))
        result = simulate_causal(SETUP, Controller(policy, forecaster), WINDOW)
        assert found_s <= result.ttft_s.mean()


def test_more_tries_are_never_worse_and_the_same_seed_finds_the_same(found_s: float) -> None:
    assert simulate_clairvoyant(SETUP, WINDOW, seed=1).ttft_s.mean() == found_s
    none_s = simulate_clairvoyant(SETUP, WINDOW, seed=1, tries=0).ttft_s.mean()
    assert found_s <= none_s


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    result = simulate_clairvoyant(SETUP, WINDOW, seed=1)
    assert result.speculated_tokens == 0
    first = int(np.argmin(result.arrived_s))
    assert result.ttft_s[first] >= SETUP.prefill_s(33 * 1024) - 1e-9


def test_a_window_without_requests_has_no_ttft() -> None:
    assert len(simulate_clairvoyant(SETUP, []).ttft_s) == 0


@settings(max_examples=15, deadline=None)
@given(windows)
def test_it_never_gets_below_the_bound(drawn: list[tuple[float, list[int]]]) -> None:
    window = spelt(drawn)
    result = simulate_clairvoyant(SETUP, window, tries=2)
    assert result.ttft_s.mean() >= lower_bound(SETUP, [window]).ttft_mean_s - 1e-9
