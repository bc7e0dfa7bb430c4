"""How fast decisions and the simulator are: rows 5 and 6 of `benchmarks/policies.py`."""

import json
import statistics
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks.policy_rows import Finding
from benchmarks.simulator_speed import POLICIES, requests_per_cpu_s
from btb.controller import Controller
from btb.simulation.causal import simulate_causal
from btb.simulation.setups import SETUPS, Setup
from btb.traces.generate import article_windows, read_article
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from models import make_models
from policies import make_policy
from policies.base import ClusterView, Decision

REPLICAS = 64
RATE_RPS = 2_000.0
BLOCK_TOKENS = 256


class TimedController(Controller):
    """Notes what each decision took, in CPU time: to observe, to forecast, and to decide."""

    def __init__(self, model: str) -> None:
        policy = make_policy("btb", seed=1)
        super().__init__(policy, Forecaster(make_models(model, policy.horizons_s)))
        self.took_s: list[float] = []

    def on_arrival(self, arrival: Arrival, cluster: ClusterView) -> Decision:
        """Decide, and take the time."""
        started_s = time.thread_time()
        decision = super().on_arrival(arrival, cluster)
        self.took_s.append(time.thread_time() - started_s)
        return decision


def scale_arrivals(requests: int, seed: int = 1) -> list[Arrival]:
    """Make a steady stream: a tenth of the requests each on 10 hot prefixes, all others on 2,000.

    Prefixes have 32 blocks, and each request one of its own.
    """
    rng = Random(seed)
    at_s, found = 0.0, []
    for number in range(requests):
        at_s += rng.expovariate(RATE_RPS)
        prefix = rng.randrange(10) if rng.random() < 0.1 else 10 + rng.randrange(2_000)
        chain = (*range(100 * prefix, 100 * prefix + 32), 10_000_000 + number)
        found.append(Arrival(at_s, chain, BLOCK_TOKENS, BLOCK_TOKENS * 33, 20))
    return found


def scale(model: str, requests: int) -> Iterator[Finding]:
    """Time decisions with 64 replicas at 2,000 requests a second of simulated time."""
    setup = replace(SETUPS["qwen3_8b_h100x4"], replicas=REPLICAS)
    controller = TimedController(model)
    simulate_causal(setup, controller, scale_arrivals(requests))
    took_s = sorted(controller.took_s[requests // 10 :])
    p50_s, p99_s = took_s[len(took_s) // 2], took_s[int(0.99 * len(took_s))]
    rate = len(took_s) / sum(took_s)
    said = f"CPU time: p50 {p50_s * 1e3:.3f} ms, p99 {p99_s * 1e3:.3f} ms, {rate:,.0f} decisions/s"
    yield Finding("5", "64 replicas: decision p99 / 2 ms", setup.name, p99_s / 0.002, 1.0, said)
    yield Finding("5", "64 replicas: 3,000 / decisions/s", setup.name, 3_000 / rate, 1.0, said)


def simulator_speed(shared: Path, setups: Sequence[str], windows: int) -> Iterator[Finding]:
    """Time the prototype engine with the article's policies, beside a loop over blocks."""
    reference = shared / "reference"
    theirs = json.loads((reference / "remeasured.json").read_text())["sets"]
    for name in ("b60", "b1"):
        given, _ = read_article(reference / "windows.json", name)
        arrivals = [list(one.arrivals) for one in article_windows(given)][:windows]
        rates = {(row["policy"], row["setup"]): row["req_per_cpu_s"] for row in theirs[name]}
        for setup in setups:
            loop = block_loop_rate(SETUPS[setup], arrivals[:1])
            times, causal = [], []
            for policy in POLICIES:
                rate = requests_per_cpu_s("prototype", setup, policy, arrivals)
                times.append(rate / rates[policy, setup])
                causal.append(requests_per_cpu_s("causal", setup, policy, arrivals))
            said = (
                f"{min(times):.1f} to {max(times):.1f} times; causal "
                f"{statistics.median(causal):,.0f} requests/s; a loop over blocks {loop:,.0f}"
            )
            over = 10.0 / min(times)
            yield Finding("6", f"{name}: 10 / times the article's", setup, over, 1.0, said)


def block_loop_rate(setup: Setup, windows: Sequence[Sequence[Arrival]]) -> float:
    """Return requests a CPU second of a straightforward prototype engine: one step a block.

    Least busy replica, block by block through an LRU cache, prefill as the article has it.
    """
    started_s, count = time.process_time(), 0
    room = int(setup.kv_capacity_bytes / (setup.article_kv_token_bytes * BLOCK_TOKENS))
    for arrivals in windows:
        caches: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(setup.replicas)]
        free_s = [0.0] * setup.replicas
        for arrival in arrivals:
            replica = min(range(setup.replicas), key=free_s.__getitem__)
            cache, hits = caches[replica], 0
            for block in arrival.chain:
                if block not in cache:
                    break
                hits += 1
            for block in arrival.chain:
                cache[block] = None
                cache.move_to_end(block)
                if len(cache) > room:
                    cache.popitem(last=False)
            tokens = max(1, arrival.input_tokens - hits * BLOCK_TOKENS)
            start_s = max(arrival.at_s, free_s[replica])
            free_s[replica] = start_s + setup.prefill_s(tokens, attention=False)
            count += 1
    return count / (time.process_time() - started_s)
