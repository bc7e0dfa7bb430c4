"""What people complain of in routers, as small workloads on the causal engine.

The numbers are those of the threads that are named, in short: sgl is sgl-project/sglang, smg
smg-project/smg, vrouter vllm-project/router, llmd llm-d/llm-d-router, and so on.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from btb.controller import Controller
from btb.simulation.causal import simulate_causal
from btb.simulation.parameters import USUAL, CausalParameters
from btb.simulation.result import Ints, Result
from btb.simulation.setups import SETUPS, Setup
from btb.traces.generate import make_windows
from btb.traces.parameters import make_parameters
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from forecasting.forecaster import Forecaster
from models import make_models
from policies import make_policy
from policies.base import ClusterView, Decision, Feedback, Policy

FOUR = SETUPS["70b_h100x4"]
BLOCK = 256


def prompt(
    at_s: float, shared: Sequence[int], own: int, *, own_tokens: int = BLOCK, output_tokens: int = 1
) -> Arrival:
    """Make a request that begins with the blocks `shared` and goes on with tokens of its own."""
    own_blocks = -(-own_tokens // BLOCK)
    chain = (*shared, *(10**9 + 1000 * own + place for place in range(own_blocks)))
    tokens = BLOCK * len(shared) + own_tokens
    return Arrival(at_s, chain, BLOCK, tokens, output_tokens, request_id=f"q{own}")


def blocks(tokens: int, prefix: int = 1) -> range:
    """Return the blocks of a prefix of `tokens` tokens."""
    return range(10**6 * prefix, 10**6 * prefix + tokens // BLOCK)


class Placed:
    """Sends the requests in `where` to the replica that is named there, all others by `policy`."""

    def __init__(self, policy: Policy, where: dict[str, str]) -> None:
        self._policy = policy
        self._where = where
        self.horizons_s = policy.horizons_s

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        decision = self._policy.decide(arrival, forecasts, cluster, now_s)
        name = self._where.get(arrival.request_id)
        if name is None:
            return decision
        others = [one for one in cluster.replicas if one != name]
        return Decision((name, *others), reason="placed")

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        self._policy.learn_one(decision, feedback)


def run(
    name: str,
    window: Sequence[Arrival],
    *,
    setup: Setup = FOUR,
    where: dict[str, str] | None = None,
    parameters: CausalParameters = USUAL,
) -> Result:
    policy = Placed(make_policy(name, seed=1), where or {})
    forecaster = Forecaster({})
    if policy.horizons_s:
        forecaster = Forecaster(make_models("ewma", policy.horizons_s))
    return simulate_causal(setup, Controller(policy, forecaster), window, parameters)


def spread(result: Result, first: int = 0, replicas: int = 4) -> list[int]:
    """Return how many requests, from number `first` on, ran on each replica, most first."""
    counts = Counter(result.replica[first:].tolist())
    return sorted((counts[number] for number in range(replicas)), reverse=True)


def hits(result: Result) -> Ints:
    """Return the tokens that each request found."""
    found: Ints = np.sum(list(result.hit_tokens.values()), axis=0)
    return found


def computed_tokens(result: Result) -> int:
    return int(result.input_tokens.sum() - hits(result).sum())


# Hot prefix, load out of balance.


def test_one_runaway_replica_does_not_end_affinity_for_the_others() -> None:
    # vrouter#238, sgl#32195: 100 requests on one replica, and prefix routing is off for all.
    crowd = [prompt(0.0, (), n, own_tokens=8192, output_tokens=50) for n in range(100)]
    warm = [prompt(0.0, blocks(16_384), 200)]
    later = [prompt(3.0 + 0.2 * n, blocks(16_384), 300 + n) for n in range(20)]
    where = {one.request_id: "r0" for one in crowd} | {"q200": "r1"}
    ours = run("btb", [*crowd, *warm, *later], where=where)
    theirs = run("cache_aware", [*crowd, *warm, *later], where=where)
    assert hits(ours)[101:].min() >= 16_384
    assert ours.ttft_s[101:].mean() <= theirs.ttft_s[101:].mean() + 1e-9
    assert 0 not in ours.replica[101:]


def test_a_new_prefix_goes_where_there_is_time_for_it() -> None:
    # sgl#14305: a miss went to the replica with the smallest tree, which was the busiest.
    busy = [prompt(0.0, (), n, own_tokens=32_768) for n in range(8)]
    known = [prompt(0.0, blocks(8192, prefix), 100 + prefix) for prefix in range(1, 4)]
    where = {one.request_id: "r0" for one in busy}
    where |= {f"q{100 + prefix}": f"r{prefix}" for prefix in range(1, 4)}
    new = prompt(4.0, (), 999, own_tokens=8192)
    result = run("btb", [*busy, *known, new], where=where)
    assert result.replica[-1] != 0


def test_cold_prompts_that_come_at_once_are_spread_evenly() -> None:
    # smg#1714, aibrix#2677: loads are all the same when they are looked at, so all go to the first.
    for tokens in (32_768, 1_000):
        window = [prompt(0.0, (), n, own_tokens=tokens) for n in range(256)]
        most, *_, least = spread(run("btb", window))
        assert most - least <= 2


def test_prompts_shorter_than_a_block_are_spread() -> None:
    # AMD-AGI/Infera#107: 100 tokens hash to no block of 768, all costs are equal: 12 of 12 to one.
    window = [Arrival(0.0, (), 768, 100, 20, request_id=f"q{n}") for n in range(12)]
    assert spread(run("btb", window)) == [3, 3, 3, 3]


def test_a_burst_on_a_prefix_that_all_hold_is_spread_evenly() -> None:
    # llmd#2515: 8 warm replicas, 64 requests in less than 1 ms, and all pick one.
    eight = replace(FOUR, replicas=8)
    warm = [prompt(0.0, blocks(8192), n) for n in range(8)]
    burst = [prompt(10.0 + n * 1e-5, blocks(8192), 100 + n) for n in range(64)]
    where = {f"q{n}": f"r{n}" for n in range(8)}
    result = run("btb", [*warm, *burst], setup=eight, where=where)
    most, *_, least = spread(result, first=8, replicas=8)
    assert most - least <= 1


def test_new_groups_go_to_replicas_of_their_own() -> None:
    # llmd#346: new groups cluster on one pod.
    window = [prompt(0.001 * group, blocks(16_384, group), group) for group in range(1, 5)]
    assert spread(run("btb", window)) == [1, 1, 1, 1]


def test_conversations_of_three_groups_wait_no_longer_where_links_are_slow() -> None:
    # Each group has a system prompt; two of them on one replica share it from then on.
    slow, over = CausalParameters(link_share=1 / 44), []
    for seed in range(5):
        (window,) = make_windows("ordinary", make_parameters("ordinary", {}), seed=seed, windows=1)
        ours, theirs = (
            run(name, window.arrivals, parameters=slow) for name in ("btb", "cache_aware")
        )
        over.append(float(ours.ttft_s.mean() / theirs.ttft_s.mean()))
    assert np.median(over) <= 1.005


def test_waves_of_requests_are_served_no_later_than_by_counting_requests() -> None:
    # llmd#298: 8 replicas, 1,000 tokens in and 1,000 out, in waves; counting requests was better.
    eight = replace(FOUR, replicas=8)
    window = [
        prompt(20.0 * wave + 0.001 * n, (), 1000 * wave + n, own_tokens=1000, output_tokens=1000)
        for wave in range(3)
        for n in range(200)
    ]
    ours, counting = (run(name, window, setup=eight) for name in ("btb", "least_load"))
    assert ours.ttft_s.mean() <= counting.ttft_s.mean() * 1.01


def test_a_hot_prefix_does_not_keep_three_replicas_idle() -> None:
    # prime-rl#3255: hot sessions stick to one saturated engine, and three stand idle.
    rng, at_s, window = Random(1), 0.0, []
    for number in range(400):
        at_s += rng.expovariate(40.0)  # a replica computes 256 tokens in 21 ms: 48 a second
        window.append(prompt(at_s, blocks(16_384), number, own_tokens=1024, output_tokens=50))
    result = run("btb", window)
    most, *_, least = spread(result)
    assert least >= 40
    assert most <= 200
    sticky = run("btb", window, where={one.request_id: "r0" for one in window})
    assert result.ttft_s.mean() < sticky.ttft_s.mean() / 3


def test_two_replicas_share_a_hot_prefix_once_both_hold_it() -> None:
    # llm-d-autoscaling#1171: 85 % of 20 requests/s on one prefix went to one of two pods.
    two = replace(FOUR, replicas=2)
    rng, at_s, window = Random(2), 0.0, []
    for number in range(600):
        at_s += rng.expovariate(20.0)
        window.append(prompt(at_s, blocks(3072), number, own_tokens=1024, output_tokens=1000))
    result = run("btb", window, setup=two)
    copied_s = min((t.ended_s for t in result.transfers), default=np.inf)
    after = result.replica[result.arrived_s > copied_s]
    assert len(after) > 500
    assert max(np.mean(after), 1 - np.mean(after)) <= 0.6


def test_a_little_load_is_no_reason_to_leave_a_warm_replica() -> None:
    # sgl#33625: bounded load by a mean of one third sends a request away from one that has 1.
    warm = prompt(0.0, blocks(16_384), 1, output_tokens=2000)
    result = run("btb", [warm, prompt(5.0, blocks(16_384), 2)], where={"q1": "r2"})
    assert result.replica[1] == 2


# Cold herd.


def test_a_cold_herd_computes_its_prefix_once() -> None:
    # llmd#1726: 8 samples of a prompt of 32k in 10 ms on 4 cold replicas: computed on several.
    window = [prompt(0.00125 * n, blocks(32_768), n) for n in range(8)]
    ours, theirs = run("btb", window), run("least_load", window)
    own = 8 * BLOCK
    assert computed_tokens(ours) == 32_768 + own
    assert computed_tokens(theirs) == 4 * 32_768 + own
    assert ours.ttft_s.mean() <= theirs.ttft_s.mean() * 1.01


def test_a_sibling_counts_on_what_is_being_computed() -> None:
    # dynamo#8276: request 2 comes 5 ms after request 1, and no event has told of its KV yet.
    window = [prompt(0.0, blocks(32_768), 1), prompt(0.005, blocks(32_768), 2)]
    result = run("btb", window)
    assert computed_tokens(result) == 32_768 + 2 * BLOCK


def test_a_prefix_under_way_is_no_hit_before_it_is_there() -> None:
    # vllm#9501: two prompts in one batch; the second one's hit is counted, though nothing is there.
    window = [prompt(0.0, blocks(32_768), 1), prompt(0.0, blocks(32_768), 2)]
    result = run("btb", window)
    assert result.ttft_s.min() >= FOUR.prefill_s(32_768 + BLOCK) - 1e-9


def test_concurrent_misses_fetch_a_prefix_once_to_each_replica() -> None:
    # orbitkv#74, mooncake#2357: 12 cold arrivals, 12 fetches; 3 replicas are cold, so 3 at most.
    window = [prompt(0.0, blocks(32_768), 0, output_tokens=400)]
    window += [prompt(10.0 + 0.0001 * n, blocks(32_768), 1 + n) for n in range(12)]
    result = run("btb", window, where={"q0": "r0"})
    targets = Counter(t.target for t in result.transfers if t.asked)
    assert targets
    assert set(targets.values()) == {1}


# Copies.


def hot(links: float) -> Result:
    """Return what becomes of a prefix of 48k tokens that 200 ask for in 30 s: work for two."""
    window = [prompt(0.0, blocks(49_152), 0)]
    window += [
        prompt(10.0 + 0.15 * n, blocks(49_152), 1 + n, own_tokens=2048, output_tokens=20)
        for n in range(200)
    ]
    return run("btb", window, parameters=CausalParameters(link_share=links))


def test_what_is_sooner_computed_is_not_moved() -> None:
    # llmd#2273: pull only where that takes less time than computing; over a slow link never.
    assert hot(links=1.0).moved_bytes > 0.0
    assert hot(links=0.001).moved_bytes == 0.0  # 80 s to copy what takes 5 s to compute


def test_a_hot_prefix_gets_more_copies_and_they_are_used() -> None:
    # mooncake#3388: one node is the bottleneck of what is hot.
    result = hot(links=1.0)
    assert len({t.target for t in result.transfers if t.asked}) >= 2
    assert result.wasted_bytes == 0.0
    assert result.ttft_s[101:].mean() < run_alone_s() * 3


def run_alone_s() -> float:
    """Return the TTFT of a request of `hot` that waits for nobody."""
    return FOUR.prefill_s(2048, 49_152)


def test_a_copy_that_came_in_time_is_on_nobodys_way() -> None:
    # llmd#2409: copy, then request: nothing is transferred while the request waits.
    result = hot(links=1.0)
    landed_s = {t.target: t.ended_s for t in result.transfers if t.asked}
    for number, replica in enumerate(result.replica.tolist()):
        if replica in landed_s and result.arrived_s[number] > landed_s[replica] + 5.0:
            assert hits(result)[number] >= 49_152
            assert result.hit_tokens["ram"][number] == 0


def test_bytes_moved_and_tokens_computed_are_told_apart() -> None:
    # preble#78: "replication" turned out to be a mark in a tree; the KV was computed again.
    result = hot(links=1.0)
    assert hits(result)[1:].min() >= 49_152
    own = int(result.input_tokens[0]) + 200 * 2048
    assert computed_tokens(result) == own
    moved = [t for t in result.transfers if t.asked]
    assert sum(t.size_bytes for t in moved) == result.moved_bytes
    assert moved[0].size_bytes == 49_152 * FOUR.kv_token_bytes


# Memory that is full.


def conversations(count: int, turns: int, gap_s: float) -> list[Arrival]:
    """Return conversations that begin with 40,960 tokens and grow by 2,560 a turn."""
    rng, window = Random(3), []
    for number in range(count):
        at_s, said = rng.uniform(0.0, gap_s), 160
        for turn in range(turns):
            shared = range(10**6 * (number + 1), 10**6 * (number + 1) + said)
            own = 100 * number + turn
            window.append(prompt(at_s, shared, own, own_tokens=512, output_tokens=100))
            said += 10
            at_s += rng.expovariate(1 / gap_s)
    return sorted(window, key=lambda one: one.at_s)


def test_conversations_that_fill_all_memory_are_not_tossed_about() -> None:
    # Each replica's HBM has room for three, its RAM for eight: what a copy evicts is wanted again.
    window = conversations(24, turns=6, gap_s=20.0)
    short = CausalParameters(hbm_share=0.25, ram_bytes=130e9)
    ours, theirs = (run(name, window, parameters=short) for name in ("btb", "cache_aware"))
    assert ours.ttft_s.mean() <= theirs.ttft_s.mean() * 1.005
    assert ours.wasted_bytes == 0.0


def test_bursts_wait_no_longer_in_a_quarter_of_the_hbm_than_without_copies() -> None:
    # It holds two prefixes, and those of two bursts and of the decoys want it.
    small = CausalParameters(hbm_share=0.25)
    family = make_parameters(
        "fanout", {"bursts": "3", "size": "200", "decoys": "60", "duration_s": "140"}
    )
    means_s: dict[str, list[float]] = {"btb": [], "ordered_cache_aware": []}
    for seed in (1, 2):
        (window,) = make_windows("fanout", family, seed=seed, windows=1)
        for name, found in means_s.items():
            result = run(name, window.arrivals, parameters=small)
            found.append(float(result.ttft_s.mean()))
    assert sum(means_s["btb"]) <= sum(means_s["ordered_cache_aware"])
