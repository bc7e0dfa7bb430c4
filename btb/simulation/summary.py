"""The figures of a comparison: what each policy reached, and how it differs from the first one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from btb.simulation.bootstrap import Paired, clusters_of, compare_pairs, quantile
from btb.simulation.cells import Outcome
from btb.simulation.result import Floats

REASONS_KEPT = 12
"""Reasons of a policy that are listed by name; the rest are counted together."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies side by side: `runs[setup, policy]` has one outcome a window.

    The first policy is the baseline of the others. `trace` is what was typed, `windows` the names
    of what was found there, `digest` stands for the content of all of them. `varied` are the causal
    engine's parameters that are not the usual ones.
    """

    engine: str
    trace: str
    digest: str
    windows: tuple[str, ...]
    setups: tuple[str, ...]
    policies: tuple[str, ...]
    model: str
    seed: int
    runs: Mapping[tuple[str, str], tuple[Outcome, ...]]
    varied: Mapping[str, float] = field(default_factory=dict)

    def pooled_ttft_s(self, setup: str, policy: str) -> Floats:
        """TTFT of all requests of all windows, in order."""
        return np.concatenate([run.result.ttft_s for run in self.runs[setup, policy]])


@dataclass(frozen=True, slots=True)
class Figures:
    """What one policy reached on one setup, all windows pooled.

    Percentiles are `sorted[int(share * n)]`, as in the article. `hit_rate` is the share of all
    prompt tokens that were not computed, `hit_rate_by_tier` where those were. `moved_bytes` is
    what the policy had copied between replicas, `wasted_bytes` the part that no request used.
    `sim_requests_per_cpu_s` is the simulator's speed, policy and forecaster included.
    """

    setup: str
    policy: str
    requests: int
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    hit_rate: float
    hit_rate_by_tier: dict[str, float]
    moved_bytes: float
    wasted_bytes: float
    copies: int
    decisions: dict[str, int]
    sim_requests_per_cpu_s: float


@dataclass(frozen=True, slots=True)
class Difference:
    """What a policy changes on one setup, against the baseline on the same requests."""

    setup: str
    policy: str
    baseline: str
    paired: Paired


def figures(comparison: Comparison) -> list[Figures]:
    """Return one row a setup and policy, in their order."""
    return [
        _figures(setup, policy, comparison)
        for setup in comparison.setups
        for policy in comparison.policies
    ]


def differences(comparison: Comparison) -> list[Difference]:
    """Return one row a setup and policy but the first, which is what they are held against."""
    baseline, *others = comparison.policies
    found = []
    for setup in comparison.setups:
        arrived_s = [run.result.arrived_s for run in comparison.runs[setup, baseline]]
        cluster = clusters_of(arrived_s)
        baseline_s = comparison.pooled_ttft_s(setup, baseline)
        for policy in others:
            for run, times_s in zip(comparison.runs[setup, policy], arrived_s, strict=True):
                assert np.array_equal(run.result.arrived_s, times_s), "not the same arrivals"
            policy_s = comparison.pooled_ttft_s(setup, policy)
            paired = compare_pairs(baseline_s, policy_s, cluster, seed=comparison.seed)
            found.append(Difference(setup, policy, baseline, paired))
    return found


def _figures(setup: str, policy: str, comparison: Comparison) -> Figures:
    runs = comparison.runs[setup, policy]
    results = [run.result for run in runs]
    ordered_s = np.sort(comparison.pooled_ttft_s(setup, policy))
    prompt_tokens = sum(int(result.input_tokens.sum()) for result in results)
    hits: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for result in results:
        hits.update({tier: int(tokens.sum()) for tier, tokens in result.hit_tokens.items()})
        reasons.update(result.decisions)
    cpu_s = sum(run.cpu_s for run in runs)
    return Figures(
        setup=setup,
        policy=policy,
        requests=len(ordered_s),
        ttft_mean_s=float(ordered_s.mean()),
        ttft_p50_s=quantile(ordered_s, 0.5),
        ttft_p95_s=quantile(ordered_s, 0.95),
        ttft_p99_s=quantile(ordered_s, 0.99),
        hit_rate=sum(hits.values()) / prompt_tokens if prompt_tokens else 0.0,
        hit_rate_by_tier={tier: count / max(1, prompt_tokens) for tier, count in hits.items()},
        moved_bytes=sum(result.moved_bytes for result in results),
        wasted_bytes=sum(result.wasted_bytes for result in results),
        copies=sum(transfer.asked for result in results for transfer in result.transfers),
        decisions=_most_common(reasons),
        sim_requests_per_cpu_s=len(ordered_s) / cpu_s if cpu_s else 0.0,
    )


def _most_common(reasons: Mapping[str, int]) -> dict[str, int]:
    ranked: Sequence[tuple[str, int]] = Counter(reasons).most_common()
    kept = dict(ranked[:REASONS_KEPT])
    if len(ranked) > REASONS_KEPT:
        kept["other"] = sum(count for _, count in ranked[REASONS_KEPT:])
    return kept
