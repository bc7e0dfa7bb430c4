"""A comparison as JSON, for scripts."""

from dataclasses import asdict
from math import isnan
from typing import Any

from btb.intervals import Interval
from btb.simulation.summary import Comparison, Difference, Figures


def to_json(
    comparison: Comparison,
    rows: list[Figures],
    found: list[Difference],
    *,
    assumptions: tuple[str, ...],
    machine: str,
) -> dict[str, Any]:
    """Return what `json.dumps` takes; times in seconds, sizes in bytes, changes as shares.

    `results` has a row a setup and policy with the fields of `Figures`; `paired` a row for each
    but the first policy. An interval is `[null, null]` where there is none.
    """
    return {
        "engine": comparison.engine,
        "trace": comparison.trace,
        "digest": comparison.digest,
        "windows": list(comparison.windows),
        "model": comparison.model,
        "seed": comparison.seed,
        "varied": dict(comparison.varied),
        "machine": machine,
        "assumptions": list(assumptions),
        "results": [asdict(row) for row in rows],
        "paired": [_paired(one) for one in found],
    }


def _paired(difference: Difference) -> dict[str, Any]:
    paired = difference.paired
    return {
        "setup": difference.setup,
        "policy": difference.policy,
        "baseline": difference.baseline,
        "ttft_mean_diff_s": paired.mean_diff_s,
        "ttft_mean_diff_ci_s": _bounds(paired.mean_diff_ci_s),
        "ttft_mean_change": paired.mean_change,
        "ttft_mean_change_ci": _bounds(paired.mean_change_ci),
        "ttft_p95_change": paired.p95_change,
        "ttft_p95_change_ci": _bounds(paired.p95_change_ci),
        "clusters": paired.clusters,
    }


def _bounds(interval: Interval) -> list[float | None]:
    return [None if isnan(bound) else bound for bound in interval]
