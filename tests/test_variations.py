"""What the causal engine varies on request: service times, memory, links, answers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from btb.controller import Controller
from btb.errors import ConfigError
from btb.simulation.causal import simulate_causal
from btb.simulation.parameters import USUAL, CausalParameters
from btb.simulation.result import Result
from btb.simulation.setups import SETUPS
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from forecasting.forecaster import Forecaster
from policies import make_policy
from policies.base import ClusterView, Decision, Policy
from policies.fixed import FixedRule

SETUP = SETUPS["70b_h100x4"]
APART = [Arrival(20.0 * n, tuple(range(100 * n, 100 * n + 8)), 1024, 8192, 3) for n in range(400)]
"""Prompts that have nothing in common and never meet."""


def run(
    parameters: CausalParameters, window: list[Arrival] = APART, policy: Policy | None = None
) -> Result:
    policy = policy or make_policy("round_robin", seed=1)
    return simulate_causal(SETUP, Controller(policy, Forecaster({})), window, parameters)


def test_noise_is_lognormal_with_mean_one_and_the_seed_s_own() -> None:
    usual = run(USUAL).ttft_s
    factors = run(CausalParameters(noise_sigma=1.0, noise_seed=3)).ttft_s / usual
    logs = np.log(factors)
    assert factors.mean() == pytest.approx(1.0, abs=0.2)  # its standard error is 0.066
    assert logs.mean() == pytest.approx(-0.5, abs=0.15)
    assert logs.std() == pytest.approx(1.0, abs=0.12)
    again = run(CausalParameters(noise_sigma=1.0, noise_seed=3)).ttft_s / usual
    other = run(CausalParameters(noise_sigma=1.0, noise_seed=4)).ttft_s / usual
    assert np.array_equal(again, factors)
    assert not np.allclose(other, factors)


class Asking(FixedRule):
    """Sends all to `r0`, and notes the queue that it was told of."""

    def __init__(self) -> None:
        self.told_s: list[float] = []

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        self.told_s.append(cluster.queue_s()[0])
        return Decision(tuple(cluster.replicas))


def test_what_a_policy_is_told_has_no_noise() -> None:
    window = [replace(APART[0], at_s=0.0), replace(APART[1], at_s=0.001)]
    asking = Asking()
    run(CausalParameters(noise_sigma=1.0, noise_seed=5), window, asking)
    assert asking.told_s == pytest.approx([0.0, SETUP.prefill_s(8192) - 0.001])


def test_all_answers_are_as_long_as_asked() -> None:
    usual, longer = run(USUAL), run(CausalParameters(output_tokens=203))
    took_s = (longer.finished_s - longer.arrived_s - longer.ttft_s).mean()
    # 202 decode steps of one request, not 2; its context grows a little.
    steps = took_s / (usual.finished_s - usual.arrived_s - usual.ttft_s).mean()
    assert steps == pytest.approx(202 / 2, rel=0.01)
    assert np.array_equal(usual.ttft_s, longer.ttft_s)


def test_a_quarter_of_the_memory_holds_a_quarter() -> None:
    room_tokens = SETUP.kv_capacity_bytes / SETUP.kv_token_bytes
    blocks = int(room_tokens / 1024 / 2)
    prompt = [Arrival(0.0, tuple(range(blocks)), 1024, 1024 * blocks)]
    assert np.isfinite(run(USUAL, prompt).ttft_s).all()
    with pytest.raises(ConfigError, match="choose a larger setup"):
        run(CausalParameters(hbm_share=0.25), prompt)


def test_a_copy_takes_as_long_as_the_link_is_slow() -> None:
    window = [
        Arrival(0.0, tuple(range(64)), 1024, 65_536),
        Arrival(20.0, (*range(64), 1000), 1024, 65_600),
    ]

    def moved_s(share: float) -> float:
        copying = make_policy("early_rdma", seed=1, threshold=1, prefix_blocks=64, copies=2)
        (transfer,) = run(CausalParameters(link_share=share), window, copying).transfers
        return transfer.ended_s - transfer.started_s - USUAL.copy_latency_s

    size_bytes = 65_536 * SETUP.kv_token_bytes
    assert moved_s(1.0) == pytest.approx(size_bytes / SETUP.rdma_bytes_s)
    assert moved_s(0.25) == pytest.approx(4 * size_bytes / SETUP.rdma_bytes_s)


@pytest.mark.parametrize(
    "given",
    [
        {"hbm_share": 0.0},
        {"hbm_share": 1.1},
        {"link_share": -1.0},
        {"noise_sigma": -0.1},
        {"noise_sigma": float("nan")},
        {"output_tokens": -1},
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, float]) -> None:
    (name,) = given
    with pytest.raises(ConfigError, match=name):
        CausalParameters(**given)  # type: ignore[arg-type]


def test_without_noise_nothing_is_slower() -> None:
    assert USUAL.slowness(3) == [1.0, 1.0, 1.0]
    assert USUAL.varied(SETUP) is SETUP
