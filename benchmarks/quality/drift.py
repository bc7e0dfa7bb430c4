"""Traffic that changes in the middle: rates, sizes and prefixes."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from benchmarks.quality.held_out import Labelled, labelled
from benchmarks.quality.row import Row, at_least, at_most
from benchmarks.quality.traces import generated, joined, opened
from btb.traces.workloads.base import Window
from forecasting import scores
from models.base import Learner
from models.boosted import Boosted
from models.combiner import Combined
from models.ewma import Ewma

HORIZON_S = 15.0
HALF_S = 3600.0
FITTED_S = 2400.0
"""Trees are fitted to the first 40 minutes."""

BEFORE_S = (FITTED_S, HALF_S)
AFTER_S = (HALF_S + 600.0, HALF_S + 1800.0)
"""Looked at are the 20 minutes before the change, and those from 10 minutes after it on."""

LARGEST_LOSS = 1.1
"""Deviance over that of a learner that had an hour of the second kind of traffic before."""

KEPT = 0.9
"""Skill, against the best EWMA of the stretch in hindsight, over that before the change."""

FROZEN = "boosted, frozen"
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
    """Return the rows of show 5: the median over seeds.

    How much skill there is to be had differs with the traffic, so the learner is held against the
    same one that saw an hour of the second kind, with other prefixes, in place of the first.
    """
    found: list[Row] = []
    told = [deviances(window(seed, first=0)) for seed in seeds]
    used = [deviances(window(seed, first=1))[1] for seed in seeds]
    for name in ("combined", FROZEN):
        what = f"traffic that changes, {HORIZON_S:g} s, {name}"
        loss = median(
            after[name] / other["combined"] for (_, after), other in zip(told, used, strict=True)
        )
        text = f"{what}: deviance from 10 min after on, over that of one used to it"
        skills = [(_skill(before, name), _skill(after, name)) for before, after in told]
        kept = median(after / before for before, after in skills)
        if name == FROZEN:
            met = loss > LARGEST_LOSS
            found.append(Row("5", text, loss, "", f"> {LARGEST_LOSS:g}", met))
        else:
            found.append(at_most("5", text, loss, LARGEST_LOSS))
            found.append(at_least("5", f"{what}: skill after over skill before", kept, KEPT))
        found.append(Row("5", f"{what}: skill before", 100.0 * median(b for b, _ in skills), "%"))
        found.append(Row("5", f"{what}: skill after", 100.0 * median(a for _, a in skills), "%"))
    return found


def window(seed: int, *, first: int) -> Window:
    """Return an hour of `HALVES[first]`, then one of the second kind, with other prefixes."""
    parts, starts_s = [], []
    for number, kind in enumerate((first, 1)):
        for family, settings in HALVES[kind].items():
            lasts = {"duration_s": f"{HALF_S:g}"}
            parts += generated(family, {**lasts, **settings}, 10 * seed + (2 if number else first))
            starts_s.append(number * HALF_S)
    return joined(parts, starts_s)


def deviances(both: Window) -> tuple[dict[str, float], dict[str, float]]:
    """Return each learner's mean Poisson deviance before the change and after it."""
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
    before, after = (
        {name: _mean(loss, *stretch_s) for name, loss in losses.items()}
        for stretch_s in (BEFORE_S, AFTER_S)
    )
    return before, after


def _skill(found: Mapping[str, float], name: str) -> float:
    return 1.0 - found[name] / min(one for key, one in found.items() if key.startswith("ewma"))


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
        for name, learner in {**learners, FROZEN: frozen}.items():
            mean = np.array([learner.predict_one(one.x).mean])
            loss = scores.poisson_deviance(mean, np.array([float(one.count)]))
            losses.setdefault(name, []).append((one.at_s, float(loss[0])))
    return losses


def _mean(losses: Sequence[tuple[float, float]], from_s: float, to_s: float) -> float:
    return float(np.mean([loss for at_s, loss in losses if from_s <= at_s < to_s]))
