"""The rows of `benchmarks/policies.py`: what is asked of `btb`, and whether it was reached."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path

import numpy as np

from benchmarks.policy_cells import GARBAGE, Case, Measured, median_ratio
from benchmarks.policy_workloads import ARTICLE, window
from btb.simulation.bootstrap import quantile
from btb.simulation.bounds import alone_s, lower_bound
from btb.simulation.parameters import USUAL
from btb.simulation.result import Floats
from btb.simulation.setups import SETUPS
from btb.traces.workloads.base import Burst, Window

BASELINES = (
    "cache_aware",
    "least_load",
    "kv_cost",
    "early_rdma",
    "mooncake_heat",
    "llmd_burst",
    "ordered_cache_aware",
    "ordered_least_load",
    "ordered_early_rdma",
    "ordered_mooncake_heat",
    "ordered_llmd_burst",
)
"""What `btb` is held against: other rules, without and with its queue order."""

FIRST_SHARE = 0.05
"""Share of a burst's requests that count as its first ones."""

FROM_OCCURRENCE = 4
"""Bursts of a prefix before this one don't count where it is asked whether they were foreseen."""

DENSE = "dense1t_b300x4"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: `value` has to be at most `target`. `note` says what else there is to know."""

    row: str
    asked: str
    setup: str
    value: float
    target: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the target is met."""
        return self.value <= self.target


@dataclass(frozen=True, slots=True)
class Row:
    """A question to some cases: which policies it takes, and how it is answered."""

    name: str
    cases: tuple[Case, ...]
    policies: tuple[str, ...]
    judge: Callable[[Measured, Case], Iterator[Finding]]

    def findings(self, measured: Measured) -> list[Finding]:
        """Return the answer for each case."""
        return [found for case in self.cases for found in self.judge(measured, case)]


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is run: setups, the article's windows, own seeds, and tries of clairvoyant."""

    shared: Path
    setups: tuple[str, ...]
    windows: tuple[int, ...]
    seeds: tuple[int, ...]
    tries: int
    limit: int

    def case(self, workload: str, setup: str) -> Case:
        """Return a workload on a setup, with the windows that are run."""
        if workload in ARTICLE:
            return Case(workload, setup, self.windows)
        real = workload in ("conversation", "synthetic", "kvct_v8")
        return Case(workload, setup, (0,) if real else self.seeds)

    def cases(self, *workloads: str, without: str = "") -> tuple[Case, ...]:
        """Return workloads on all setups but one."""
        setups = [setup for setup in self.setups if setup != without]
        return tuple(self.case(workload, setup) for workload in workloads for setup in setups)

    def traffic(self, case: Case) -> list[Window]:
        """Return the windows of a case."""
        return [window(case.workload, one, self.shared, self.limit) for one in case.windows]


def rows(scope: Scope) -> dict[str, list[Row]]:
    """Return the rows by the number that they have in the issue."""
    clairvoyant = f"clairvoyant:tries={scope.tries}"
    bursts = (*BASELINES, "btb", clairvoyant)
    return {
        "1": [
            Row("60 s bursts", scope.cases("b60"), bursts, _sixty(scope, clairvoyant)),
        ],
        "2": [Row("1 s bursts", scope.cases("b1"), bursts, _one(scope, clairvoyant))],
        "3": [
            Row(
                "foreseen bursts",
                scope.cases("recurring", "agents", without=DENSE),
                ("cache_aware", "btb"),
                _foreseen(scope),
            ),
            Row("ramp", scope.cases("ramp"), (*BASELINES, "btb"), _ramp(scope)),
        ],
        "4": [Row("never worse", _never_worse_cases(scope), ("cache_aware", "btb"), _never_worse)],
    }


def _sixty(scope: Scope, best: str) -> Callable[[Measured, Case], Iterator[Finding]]:
    def judge(measured: Measured, case: Case) -> Iterator[Finding]:
        mean_s, p95_s = measured.mean_s(case, "btb"), measured.p95_s(case, "btb")
        note = _bound_note(scope, measured, case, best)
        over = mean_s / measured.mean_s(case, best)
        yield Finding("1", "60 s: mean / clairvoyant's", case.setup, over, 1.10, note)
        over = p95_s / measured.p95_s(case, best)
        yield Finding("1", "60 s: p95 / clairvoyant's", case.setup, over, 1.15, note)
        name, least_s = _best_baseline(measured, case, measured.mean_s)
        said = f"{name} {least_s:.4g} s, btb {mean_s:.4g} s"
        yield Finding("1", "60 s: mean / best other's", case.setup, mean_s / least_s, 1.01, said)
        ours, theirs = (measured.moved_bytes(case, one) for one in ("btb", "early_rdma"))
        moved = ours / theirs if theirs else inf if ours else 0.0
        said = f"{ours / 1e9:,.0f} GB, early_rdma {theirs / 1e9:,.0f} GB"
        yield Finding("1", "60 s: moved / early_rdma's", case.setup, moved, 0.5, said)

    return judge


def _one(scope: Scope, best: str) -> Callable[[Measured, Case], Iterator[Finding]]:
    def judge(measured: Measured, case: Case) -> Iterator[Finding]:
        note = _bound_note(scope, measured, case, best)
        for word, figure in (("mean", measured.mean_s), ("p95", measured.p95_s)):
            name, least_s = _best_baseline(measured, case, figure)
            ours_s = figure(case, "btb")
            said = f"{name} {least_s:.4g} s, btb {ours_s:.4g} s; {note}"
            yield Finding(
                "2", f"1 s: {word} / best other's", case.setup, ours_s / least_s, 1.02, said
            )

    return judge


def _best_baseline(
    measured: Measured, case: Case, figure: Callable[[Case, str], float]
) -> tuple[str, float]:
    return min(((name, figure(case, name)) for name in BASELINES), key=lambda one: one[1])


def _bound_note(scope: Scope, measured: Measured, case: Case, best: str) -> str:
    bound = lower_bound(SETUPS[case.setup], [one.arrivals for one in scope.traffic(case)])
    mean, p95 = measured.mean_s(case, best), measured.p95_s(case, best)
    return (
        f"clairvoyant / bound: mean {mean / bound.ttft_mean_s:.3f}, "
        f"p95 {p95 / bound.ttft_p95_s:.3f}"
    )


def _foreseen(scope: Scope) -> Callable[[Measured, Case], Iterator[Finding]]:
    def judge(measured: Measured, case: Case) -> Iterator[Finding]:
        setup, traffic = SETUPS[case.setup], scope.traffic(case)
        chosen = [first_requests(one) for one in traffic]
        ours, theirs = (
            [_mean(ttft_s, picked) for ttft_s, picked in zip(ttfts_s, chosen, strict=True)]
            for ttfts_s in (measured.ttft_s(case, "btb"), measured.ttft_s(case, "cache_aware"))
        )
        least = [
            _mean(alone_s(setup, one.arrivals), picked)
            for one, picked in zip(traffic, chosen, strict=True)
        ]
        said = (
            f"first {FIRST_SHARE:.0%}: btb {np.median(ours) * 1e3:.1f} ms, cache_aware "
            f"{np.median(theirs) * 1e3:.1f} ms, bound {np.median(least) * 1e3:.1f} ms, so at most "
            f"{1 - median_ratio(least, theirs):.0%} below cache_aware for anybody"
        )
        asked = f"{case.workload}: first requests / "
        over = median_ratio(ours, theirs)
        yield Finding("3", f"{asked}cache_aware's", case.setup, over, 0.4, said)
        over = median_ratio(ours, least)
        yield Finding("3", f"{asked}no-foresight bound", case.setup, over, 0.6, "")

    return judge


def _mean(ttft_s: Floats, chosen: Sequence[int]) -> float:
    return float(ttft_s[list(chosen)].mean())


def first_requests(one: Window) -> list[int]:
    """Return the first requests of each burst from a prefix's fourth on, as places in the window.

    A prefix is told by its first 2,048 tokens: a job, or the template of an agent's parents.
    """
    seen: Counter[int] = Counter()
    found: list[int] = []
    for burst in one.bursts:
        requests = _requests(one, burst)
        kind = one.arrivals[requests[0]].chain[7]
        seen[kind] += 1
        if seen[kind] >= FROM_OCCURRENCE:
            found += requests[: ceil(FIRST_SHARE * len(requests))]
    return found


def _requests(one: Window, burst: Burst) -> list[int]:
    place = burst.prefix_tokens // one.arrivals[0].block_tokens - 1
    return [
        index
        for index, arrival in enumerate(one.arrivals)
        if burst.start_s <= arrival.at_s <= burst.end_s
        and len(arrival.chain) > place
        and arrival.chain[place] == burst.prefix_key
    ]


def _ramp(scope: Scope) -> Callable[[Measured, Case], Iterator[Finding]]:
    def judge(measured: Measured, case: Case) -> Iterator[Finding]:
        ours = [float(ttft_s.mean()) for ttft_s in measured.ttft_s(case, "btb")]
        over = {
            name: median_ratio(ours, [float(t.mean()) for t in measured.ttft_s(case, name)])
            for name in BASELINES
        }
        name = max(over, key=over.__getitem__)
        times_s = [
            payback_s(one, mine, theirs)
            for one, mine, theirs in zip(
                scope.traffic(case),
                measured.ttft_s(case, "btb"),
                measured.ttft_s(case, "cache_aware"),
                strict=True,
            )
        ]
        said = f"{name}; pays back against cache_aware after {np.median(times_s):.0f} s"
        yield Finding("3", "ramp: mean / best other's", case.setup, over[name], 1.0, said)

    return judge


def payback_s(one: Window, ours_s: Floats, theirs_s: Floats) -> float:
    """Return from when on the TTFT saved so far, summed up, stays above zero."""
    arrived_s = np.array([arrival.at_s for arrival in one.arrivals])
    behind = np.flatnonzero(np.cumsum(theirs_s - ours_s) <= 0.0)
    return float(arrived_s[behind[-1]]) if len(behind) else 0.0


def _never_worse_cases(scope: Scope) -> tuple[Case, ...]:
    real = scope.cases("conversation", "synthetic", "kvct_v8", "ordinary")
    fanout = scope.cases("fanout")
    varied = [
        replace(case, parameters=parameters)
        for parameters in (
            replace(USUAL, output_tokens=256),
            replace(USUAL, hbm_share=0.25),
            replace(USUAL, link_share=1 / 44),
            replace(USUAL, noise_sigma=1.0, noise_seed=1),
        )
        for case in fanout
    ]
    lied_to = [replace(case, model=GARBAGE) for case in fanout]
    return (*real, *varied, *scope.cases("decoys"), *lied_to)


def _never_worse(measured: Measured, case: Case) -> Iterator[Finding]:
    name = _described(case)
    ours, theirs = measured.ttft_s(case, "btb"), measured.ttft_s(case, "cache_aware")
    mean = median_ratio([float(t.mean()) for t in ours], [float(t.mean()) for t in theirs])
    yield Finding("4", f"{name}: mean / cache_aware's", case.setup, mean, 1.005)
    p95 = median_ratio([_p95(one) for one in ours], [_p95(one) for one in theirs])
    yield Finding("4", f"{name}: p95 / cache_aware's", case.setup, p95, 1.005)
    wasted = measured.wasted_share(case, "btb")
    yield Finding("4", f"{name}: moved for nothing / computed", case.setup, wasted, 0.005)


def _p95(ttft_s: Floats) -> float:
    return quantile(np.sort(ttft_s), 0.95)


def _described(case: Case) -> str:
    words = {
        "output_tokens": "answers of {:.0f} tokens",
        "hbm_share": "{:.3g} of the HBM",
        "link_share": "{:.3g} of the links",
        "noise_sigma": "noise {:g}",
    }
    varied = [
        text.format(getattr(case.parameters, name))
        for name, text in words.items()
        if getattr(case.parameters, name) != getattr(USUAL, name)
    ]
    lied = ["forecasts turned round"] if case.model == GARBAGE else []
    return ", ".join([case.workload, *varied, *lied])
