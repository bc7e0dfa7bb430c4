"""Bursts among decoys that come 1 to 5 times: who tells them apart at the third arrival."""

from collections.abc import Mapping, Sequence

from benchmarks.quality.held_out import labelled
from benchmarks.quality.row import Row, at_least
from benchmarks.quality.traces import generated, joined, opened
from btb.evaluation import BurstKind, Evaluation, evaluate
from btb.traces.workloads.base import Window
from forecasting.forecaster import BOUNDARY_TOKENS
from models import make_models
from models.base import Learner
from models.combiner import Combined

DECOYS, REPEATS = 480, (1, 2, 3, 4, 5)
TRAINING_SEEDS = (101, 102, 103, 104)
"""Windows that the learners go through first; none of them is scored."""

SEEN = 3


def window(seed: int) -> Window:
    """Return 8 bursts of 500 in a minute, and as many decoys of each number of repeats."""
    parts = [
        generated(
            "fanout",
            {
                "bursts": "8" if repeats == 1 else "0",
                "decoys": str(DECOYS // len(REPEATS)),
                "decoy_repeats": str(repeats),
            },
            seed * 10 + repeats,
        )[0]
        for repeats in REPEATS
    ]
    return joined(parts, [0.0] * len(parts))


def rows(seeds: Sequence[int]) -> list[Row]:
    """Return the rows of show 4."""
    kind = BurstKind()
    model = Combined(kind.within_s)
    with opened([window(seed) for seed in TRAINING_SEEDS]) as traces:
        samples = labelled(traces)[kind.within_s]
    for one in samples:
        model.learn_one(one.x, one.count)
    model.fit([one.x for one in samples], [one.count for one in samples], seed=TRAINING_SEEDS[0])
    models: dict[str, Mapping[float, Learner]] = {
        "combined": {kind.within_s: model},
        "river, from nothing": make_models("river", [kind.within_s]),
    }
    with opened([window(seed) for seed in seeds]) as traces:
        outcome = evaluate(traces, models, kind, boundary_tokens=BOUNDARY_TOKENS)
    return [row for name in outcome.alarms for row in figures(outcome, name)]


def figures(outcome: Evaluation, name: str) -> list[Row]:
    """Return precision and recall of a detector at the third arrival."""
    point = outcome.point(name, SEEN)
    precision, recall = point.precision or 0.0, point.recall or 0.0
    what = f"fanout, {outcome.bursts} bursts, {DECOYS} decoys a window, {name}: at arrival {SEEN}"
    if name == "combined":
        return [
            at_least("4", f"{what}, precision", precision, 0.9),
            at_least("4", f"{what}, recall", recall, 0.95),
        ]
    return [Row("4", f"{what}, precision", precision), Row("4", f"{what}, recall", recall)]
