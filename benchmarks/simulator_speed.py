"""How fast the simulator is, beside the article's own on the same windows.

    .venv/bin/python -m benchmarks.simulator_speed [--rounds 3] [--set b60]

The article's simulator can't be run from here; its speed on a machine of this class was measured
once and stands in `../shared/reference/remeasured.json`. Ours runs the same windows, policies and
engine, cutting chains into runs included, and then the causal engine for comparison.
"""

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

from btb.controller import Controller
from btb.simulation.engines import ENGINES
from btb.simulation.setups import ARTICLE_SETUPS, SETUPS
from btb.traces.generate import article_windows, read_article
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from policies import make_policy

REFERENCE = Path(__file__).parents[1].parent / "shared" / "reference"
POLICIES = ("least_load", "cache_aware", "early_rdma")


def requests_per_cpu_s(engine: str, setup: str, policy: str, windows: list[list[Arrival]]) -> float:
    """Return how many requests are simulated in one second of CPU time."""
    made = ENGINES[engine]
    took_s, requests = 0.0, 0
    for arrivals in windows:
        controller = Controller(
            make_policy(made.policies.get(policy, policy), seed=42), Forecaster({})
        )
        began_s = time.process_time()
        made.simulate(SETUPS[setup], controller, arrivals)
        took_s += time.process_time() - began_s
        requests += len(arrivals)
    return requests / took_s


def main() -> None:
    """Print requests a CPU second, ours and theirs, and how many times faster ours is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="median over this many")
    parser.add_argument("--set", default="b60", choices=("b60", "b1"))
    options = parser.parse_args()
    given, _ = read_article(REFERENCE / "windows.json", options.set)
    windows = [list(window.arrivals) for window in article_windows(given)]
    rows = json.loads((REFERENCE / "remeasured.json").read_text())["sets"][options.set]
    theirs = {(row["policy"], row["setup"]): row["req_per_cpu_s"] for row in rows}
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, ", end="")
    print(f"Python {platform.python_version()}; set {options.set}, 61,800 requests a row")
    print(f"{'setup':17}{'policy':13}{'theirs':>9}{'prototype':>11}{'times':>7}{'causal':>9}")
    times = []
    for setup in ARTICLE_SETUPS:
        for policy in POLICIES:
            prototype, causal = (
                statistics.median(
                    requests_per_cpu_s(engine, setup, policy, windows)
                    for _ in range(options.rounds)
                )
                for engine in ("prototype", "causal")
            )
            measured = theirs[policy, setup]
            times.append(prototype / measured)
            print(f"{setup:17}{policy:13}{measured:9,.0f}{prototype:11,.0f}", end="")
            print(f"{times[-1]:7.1f}{causal:9,.0f}", flush=True)
    print(f"times faster: least {min(times):.1f}, median {statistics.median(times):.1f}")


if __name__ == "__main__":
    main()
