"""Real traces: fitted to the first half, scored on the second."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.row import Row, at_least, at_most
from btb.evaluation import BurstKind, evaluate
from btb.traces import ReaderOptions, Trace, open_windows
from forecasting import scores
from forecasting.forecaster import BOUNDARY_TOKENS
from forecasting.labels import LabelQueue
from forecasting.tracker import PrefixTracker
from models import MODELS, make_models
from models.base import HALF_LIVES_S, HORIZONS_S, Features, Learner, decayed_count
from models.boosted import Boosted
from models.combiner import Combined
from models.counts import Counts

KVCT = "kvct_v8_local_sessions.compact.jsonl.zst"
QUIET = (
    "mooncake_conversation_trace.jsonl.zst",
    "mooncake_synthetic_trace.jsonl.zst",
    "mooncake_arxiv_first1000.jsonl.zst",
)
"""Traces with almost nothing to foresee."""

SPREAD_S, SEED = 3600.0, 1
SINGLE = ("ewma", "hawkes", "recurrence", "river", "boosted")
FEWEST_ARRIVALS = 20
"""Where fewer followed all forecasts that are scored, one learner can't be told from another."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Labelled:
    """What was known at `at_s`, and how many arrivals followed within the horizon."""

    at_s: float
    x: Features
    count: int


class ScaledEwma:
    """A decayed count times a factor that was fitted to the first half, and stays."""

    def __init__(self, half_life_s: float) -> None:
        self._name = decayed_count(half_life_s)
        self._came = self._claimed = 1e-9

    def predict_one(self, x: Features) -> Counts:
        """Return the decayed count times the factor."""
        return Counts(x[self._name] * self._came / self._claimed)

    def learn_one(self, x: Features, count: int) -> None:
        """Fit the factor."""
        self._came += count
        self._claimed += x[self._name]


@dataclass(frozen=True, slots=True)
class Scored:
    """Forecasts of the second half by learner, as (mean, shape), and what came."""

    forecasts: Mapping[str, tuple[Array, Array]]
    counts: Array

    def deviance(self, name: str) -> float:
        """Return the mean Poisson deviance of a learner."""
        return float(scores.poisson_deviance(self.forecasts[name][0], self.counts).mean())

    def best(self, prefix: str) -> float:
        """Return the least deviance of the learners whose name begins so."""
        return min(self.deviance(name) for name in self.forecasts if name.startswith(prefix))

    def covered(self, name: str) -> tuple[float, float, float]:
        """Return what 80 % intervals cover: of all, and the least and most of a tenth by mean."""
        mean, shape = self.forecasts[name]
        inside = scores.inside(mean, shape, self.counts, 0.1, 0.9)
        tenths = [part.mean() for part in np.array_split(inside[np.argsort(mean)], 10)]
        return float(inside.mean()), float(min(tenths)), float(max(tenths))


def rows(data: Path, seed: int) -> list[Row]:
    """Return the rows of show 1; traces that are not there are left out."""
    found: list[Row] = []
    options = ReaderOptions(start_spread_s=SPREAD_S, seed=SEED)
    if (data / KVCT).exists():
        found += agents_on_tools(open_windows([data / KVCT], options=options), seed)
    for name in QUIET:
        if (data / name).exists():
            found += quiet(name.split(".")[0], open_windows([data / name]), seed)
    return found


def agents_on_tools(windows: Sequence[Trace], seed: int) -> list[Row]:
    """Return how far below the scaled EWMA the learners are on kv-cache-tester."""
    found: list[Row] = []
    targets = {15.0: 12.0, 60.0: 4.0}
    for horizon_s, samples in labelled(windows).items():
        result = score(samples, horizon_s, seed)
        ewma = result.best("scaled ewma")
        what = f"kv-cache-tester v8, {horizon_s:g} s"
        found.append(Row("1", f"{what}: deviance of the scaled EWMA", ewma))
        for name in (one for one in (*SINGLE, "combined") if one in result.forecasts):
            below = 100.0 * (1.0 - result.deviance(name) / ewma)
            text = f"{what}: {name} below it"
            if name == "combined" and horizon_s in targets:
                found.append(at_least("1", text, below, targets[horizon_s], "%"))
            else:
                found.append(Row("1", text, below, "%"))
        found += coverage(what, result)
    return found


def coverage(what: str, result: Scored) -> list[Row]:
    """Return what the combination's 80 % intervals cover."""
    overall, low, high = (100.0 * share for share in result.covered("combined"))
    return [
        Row("1", f"{what}: 80 % interval covers", overall, "%", "75 to 85", 75 <= overall <= 85),
        at_least("1", f"{what}: least covered tenth by forecast", low, 75.0, "%"),
        at_most("1", f"{what}: most covered tenth by forecast", high, 85.0, "%"),
    ]


def quiet(title: str, windows: Sequence[Trace], seed: int) -> list[Row]:
    """Return how the combination does beside the best single learner, and how often it alarms."""
    found: list[Row] = []
    for horizon_s, samples in labelled(windows).items():
        result = score(samples, horizon_s, seed)
        if result.counts.sum() < FEWEST_ARRIVALS:
            continue
        singles = [name for name in SINGLE if name in result.forecasts]
        best = min(result.deviance(name) for name in singles)
        above = 100.0 * (result.deviance("combined") / best - 1.0)
        what = f"{title}, {horizon_s:g} s: combined above the best single learner"
        found.append(at_most("1", what, above, 1.0, "%"))
    kind = BurstKind()
    models = {"combined": make_models("combined", [kind.within_s])}
    outcome = evaluate(windows, models, kind, boundary_tokens=BOUNDARY_TOKENS)
    alarms = outcome.alarms["combined"]
    false = sum(alarms.false.values()) + alarms.withdrawn
    text = f"{title}: false alarms, {outcome.bursts} bursts in {outcome.episodes} episodes"
    found.append(at_most("1", text, float(false), 0.0))
    return found


def labelled(windows: Sequence[Trace]) -> dict[float, list[Labelled]]:
    """Return every sample with its label, by horizon, in the order of time."""
    found: dict[float, list[Labelled]] = {horizon_s: [] for horizon_s in HORIZONS_S}
    for window in windows:
        tracker, queue = PrefixTracker(BOUNDARY_TOKENS), LabelQueue(HORIZONS_S, 1_000_000)
        for arrival in window:
            for label in queue.due(arrival.at_s):
                one = Labelled(label.sample.at_s, label.sample.x, label.count)
                found[label.horizon_s].append(one)
            sample = tracker.observe(arrival)
            if sample is not None:
                queue.add(sample)
    return found


def score(samples: Sequence[Labelled], horizon_s: float, seed: int) -> Scored:
    """Return the forecasts of the second half of `samples`, each learner fitted to the first.

    Online learners go on learning; a label is learnt once its horizon has passed, not before.
    """
    half = len(samples) // 2
    log, rest = samples[:half], samples[half:]
    known = [one for one in log if one.at_s + horizon_s < rest[0].at_s]
    learners: dict[str, Learner] = {name: MODELS[name](horizon_s) for name in SINGLE[:-1]}
    frozen = {f"scaled ewma {h:g} s": ScaledEwma(h) for h in HALF_LIVES_S}
    combined = Combined(horizon_s)
    for one in known:
        for learner in (*learners.values(), *frozen.values(), combined):
            learner.learn_one(one.x, one.count)
    fit_to = [one.x for one in known], [one.count for one in known]
    try:
        boosted = Boosted(horizon_s)
        boosted.fit(*fit_to, seed=seed)
        learners["boosted"] = boosted
        combined.fit(*fit_to, seed=seed)
    except ValueError as error:
        print(f"no trees at {horizon_s:g} s: {error}", flush=True)
    learners["combined"] = combined
    made = _forecasts({**learners, **frozen}, learners, log[len(known) :], rest, horizon_s)
    return Scored(
        {name: (column[:, 0], column[:, 1]) for name, column in made.items()},
        np.array([one.count for one in rest], dtype=np.float64),
    )


def _forecasts(
    everyone: Mapping[str, Learner],
    learning: Mapping[str, Learner],
    waiting: Sequence[Labelled],
    rest: Sequence[Labelled],
    horizon_s: float,
) -> dict[str, Array]:
    pending = [*waiting, *rest]
    learnt = 0
    made: dict[str, list[tuple[float, float]]] = {name: [] for name in everyone}
    for one in rest:
        while pending[learnt].at_s + horizon_s < one.at_s:
            for learner in learning.values():
                learner.learn_one(pending[learnt].x, pending[learnt].count)
            learnt += 1
        for name, learner in everyone.items():
            count = learner.predict_one(one.x)
            made[name].append((count.mean, count.shape))
    return {name: np.array(column) for name, column in made.items()}
