"""What `btb compare` keeps in MLflow: a run a comparison, below it one a setup and policy."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from btb import tracking
from btb.simulation.pictures import Picture
from btb.simulation.summary import Comparison

EXPERIMENT = "btb compare"


def log_comparison(
    comparison: Comparison,
    content: Mapping[str, Any],
    drawn: Mapping[str, Sequence[Picture]],
    page: str,
) -> None:
    """Store a comparison: `content` is its JSON, `drawn` its pictures by setup, `page` the report.

    Raises
    ------
    ConfigError
        If MLflow can't be reached.
    """
    params = {
        "engine": comparison.engine,
        "setups": ", ".join(comparison.setups),
        "policies": ", ".join(comparison.policies),
        "windows": len(comparison.windows),
        "model": comparison.model,
        "seed": comparison.seed,
    }
    with tracking.experiment(EXPERIMENT).run(comparison.trace, params=params) as run:
        run.dataset(comparison.trace, comparison.digest)
        run.text("report.html", page)
        run.text("compare.json", json.dumps(content, indent=2))
        for setup, pictures in drawn.items():
            for picture in pictures:
                run.figure(f"{setup}/{picture.name}.png", picture.figure)
        changes = {(one["setup"], one["policy"]): one for one in content["paired"]}
        for row in content["results"]:
            setup, policy = row["setup"], row["policy"]
            metrics = _numbers(row) | _numbers(changes.get((setup, policy), {}))
            tags = {"setup": setup, "policy": policy}
            with run.child(f"{policy} on {setup}", tags=tags, params=tags) as child:
                child.metrics(metrics)


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a row by name; bounds and shares by tier get names of their own."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, int | float):
            found[name] = value
        elif isinstance(value, list):
            ends = zip(("low", "high"), value, strict=True)
            found |= {f"{name}_{end}": bound for end, bound in ends if bound is not None}
        elif name == "hit_rate_by_tier":
            found |= {f"hit_rate_{tier}": share for tier, share in value.items()}
    return found
