"""Traffic that changes in the middle: rates, sizes and prefixes."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from btb.traces.workloads.base import Window
from forecasting import scores
from models.base import Learner
from models.boosted import Boosted
from models.combiner import Combined
from models.ewma import Ewma
from quality.held_out import Labelled, labelled
from quality.row import Row, at_least
from quality.traces import generated, joined, opened

HORIZON_S = 15.0
HALF_S = 3600.0
FITTED_S = 2400.0
"""Trees are fitted to the first 40 minutes."""

BEFORE_S = (FITTED_S, HALF_S)
AFTER_S = (HALF_S + 600.0, HALF_S + 1800.0)
"""Skill is that of the 20 minutes before the change, and of those from 10 minutes after it on."""

KEPT = 0.9
EWMA_HALF_LIVES_S = (5.0, 15.0, 60.0, 300.0)

HALVES: Sequence[Mapping[str, Mapping[str, str]]] = (
    {
        "agents": {"parents_per_s": "0.15", "children": "8", "delay_s": "8", "think_s": "6"},
        "ordinary": {"chats_per_s": "0.5", "think_s": "25", "system_tokens": "2304"},
    },
    {
        "agents": {"parents_per_s": "0.3", "children": "12", "delay_s": "5", "think_s": "10"},
        "ordinary": {"chats_per_s": "1.0", "think_s": "12", "system_tokens": "2304"},
    },
)


def rows(seeds: Sequence[int]) -> list[Row]:
    """Return the rows of show 5: the median over seeds."""
    told = [skills(window(seed)) for seed in seeds]
    found: list[Row] = []
    for name in ("combined", "boosted, frozen"):
        before = median(one[name][0] for one in told)
        after = median(one[name][1] for one in told)
        kept = median(one[name][1] / one[name][0] for one in told)
        what = f"traffic that changes, {HORIZON_S:g} s, {name}"
        found.append(Row("5", f"{what}: skill before", 100.0 * before, "%"))
        found.append(Row("5", f"{what}: skill from 10 min after on", 100.0 * after, "%"))
        text = f"{what}: skill after over skill before"
        if name == "combined":
            found.append(at_least("5", text, kept, KEPT))
        else:
            found.append(Row("5", text, kept, "", f"< {KEPT:g}", kept < KEPT))
    return found


def window(seed: int) -> Window:
    """Return two hours of traffic, the second of another kind and with other prefixes."""
    parts, starts_s = [], []
    for number, half in enumerate(HALVES):
        for family, settings in half.items():
            lasts = {"duration_s": f"{HALF_S:g}"}
            parts += generated(family, {**lasts, **settings}, 10 * seed + number)
            starts_s.append(number * HALF_S)
    return joined(parts, starts_s)


def skills(both: Window) -> dict[str, tuple[float, float]]:
    """Return each learner's skill against the best EWMA of a stretch, before and after."""
    with opened([both]) as traces:
        samples = labelled(traces)[HORIZON_S]
    learners: dict[str, Learner] = {f"ewma {h:g} s": Ewma(HORIZON_S, h) for h in EWMA_HALF_LIVES_S}
    combined, frozen = Combined(HORIZON_S), Boosted(HORIZON_S)
    log = [one for one in samples if one.at_s + HORIZON_S < FITTED_S]
    for one in log:
        for learner in (*learners.values(), combined):
            learner.learn_one(one.x, one.count)
    for model in (combined, frozen):
        model.fit([one.x for one in log], [one.count for one in log], seed=1)
    losses = _losses({**learners, "combined": combined}, frozen, samples[len(log) :])
    found = {}
    stretches = [
        {name: _mean(loss, *stretch_s) for name, loss in losses.items()}
        for stretch_s in (BEFORE_S, AFTER_S)
    ]
    for name in ("combined", "boosted, frozen"):
        before, after = (1.0 - one[name] / min(one[ewma] for ewma in learners) for one in stretches)
        found[name] = before, after
    return found


def _losses(
    learners: Mapping[str, Learner], frozen: Learner, rest: Sequence[Labelled]
) -> dict[str, list[tuple[float, float]]]:
    """Return (time, deviance) of each forecast; labels are learnt when they are known."""
    losses: dict[str, list[tuple[float, float]]] = {}
    learnt = 0
    for one in rest:
        while rest[learnt].at_s + HORIZON_S < one.at_s:
            for learner in learners.values():
                learner.learn_one(rest[learnt].x, rest[learnt].count)
            learnt += 1
        for name, learner in {**learners, "boosted, frozen": frozen}.items():
            mean = np.array([learner.predict_one(one.x).mean])
            loss = scores.poisson_deviance(mean, np.array([float(one.count)]))
            losses.setdefault(name, []).append((one.at_s, float(loss[0])))
    return losses


def _mean(losses: Sequence[tuple[float, float]], from_s: float, to_s: float) -> float:
    return float(np.mean([loss for at_s, loss in losses if from_s <= at_s < to_s]))
