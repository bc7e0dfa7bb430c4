"""The article's simulator, run again by others on the same windows, and ours: to the last digit.

`remeasured.json` was made with the article's own code. Ties are broken by the same draws of
Python's generator, seeded with 42 for each window as there, so not even chance differs.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btb.controller import Controller
from btb.simulation.causal import simulate_causal
from btb.simulation.engines import ENGINES
from btb.simulation.parameters import CausalParameters
from btb.simulation.plan import ARTICLE_SEED
from btb.simulation.setups import ARTICLE_SETUPS, SETUPS
from btb.traces.generate import article_windows, read_article
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from policies import make_policy

REFERENCE = Path(__file__).parents[1].parent / "shared" / "reference"


pytestmark = pytest.mark.skipif(
    not (REFERENCE / "windows.json").exists(),
    reason="the article's windows are not here: ../shared/reference/windows.json",
)


@pytest.fixture(scope="module")
def windows() -> dict[str, list[list[Arrival]]]:
    """Read the 15 windows of each of the two sets."""
    sets = {}
    for name in ("b60", "b1"):
        given, _ = read_article(REFERENCE / "windows.json", name)
        sets[name] = [list(window.arrivals) for window in article_windows(given)]
    return sets


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, str, str], dict[str, Any]]:
    """Read what was measured with the article's code, by set, policy and setup."""
    sets = json.loads((REFERENCE / "remeasured.json").read_text())["sets"]
    return {(name, row["policy"], row["setup"]): row for name in sets for row in sets[name]}


@pytest.mark.parametrize("setup", ARTICLE_SETUPS)
@pytest.mark.parametrize("policy", ["least_load", "cache_aware", "early_rdma"])
@pytest.mark.parametrize("name", ["b60", "b1"])
def test_the_prototype_engine_gives_the_articles_figures(
    name: str,
    policy: str,
    setup: str,
    windows: dict[str, list[list[Arrival]]],
    measured: dict[tuple[str, str, str], dict[str, Any]],
) -> None:
    engine = ENGINES["prototype"]
    ttft_s = []
    for arrivals in windows[name]:
        made = make_policy(engine.policies.get(policy, policy), seed=ARTICLE_SEED)
        result = engine.simulate(SETUPS[setup], Controller(made, Forecaster({})), arrivals)
        ttft_s.append(result.ttft_s)
    pooled = np.sort(np.concatenate(ttft_s))
    want = measured[name, policy, setup]
    assert len(pooled) == 61_800
    assert pooled.mean() == pytest.approx(want["mean"], rel=1e-6)
    assert pooled[int(0.50 * len(pooled))] == pytest.approx(want["p50"], rel=1e-6)
    assert pooled[int(0.95 * len(pooled))] == pytest.approx(want["p95"], rel=1e-6)
    assert pooled[int(0.99 * len(pooled))] == pytest.approx(want["p99"], rel=1e-6)


# The causal engine against an independent causal model of the same windows, without attention and
# with the article's KV sizes: mean and p95 TTFT in seconds, from ../shared/reference/README.md.
CAUSAL = {
    ("glm45_h100x4", "cache_aware"): (0.310, 1.95),
    ("glm45_h100x4", "early_rdma"): (0.123, 1.23),
    ("glm52_h100x8", "cache_aware"): (0.138, 1.14),
    ("glm52_h100x8", "early_rdma"): (0.0614, 0.295),
}


@pytest.mark.parametrize(("setup", "policy"), CAUSAL)
def test_the_causal_engine_agrees_with_an_independent_one(
    setup: str, policy: str, windows: dict[str, list[list[Arrival]]]
) -> None:
    model = SETUPS[setup].model
    as_there = replace(SETUPS[setup], model=replace(model, kv_bytes=model.article_kv_bytes))
    parameters = CausalParameters(attention=False, ram_bytes=1e15)
    ttft_s = [
        simulate_causal(
            as_there, Controller(make_policy(policy, seed=1), Forecaster({})), arrivals, parameters
        ).ttft_s
        for arrivals in windows["b60"]
    ]
    pooled = np.sort(np.concatenate(ttft_s))
    mean_s, p95_s = CAUSAL[setup, policy]
    assert pooled.mean() == pytest.approx(mean_s, rel=0.03)
    assert pooled[int(0.95 * len(pooled))] == pytest.approx(p95_s, rel=0.03)
