"""What learners fitted to a log are worth on what came after it, beside those that learn online.

    .venv/bin/python -m benchmarks.trained_learners [--traces kvct,mixed,recurring:2,recurring:3]

The first half of a trace's samples is the log: trained learners are fitted to those of its labels
that are known by the end of it, EWMAs get their scale and keep it, and online learners learn. Then
each forecast of the second half is scored when its horizon has passed, and learnt from. The EWMA is
the best of four half-lives in hindsight. kv-cache-tester v8 is on a common clock, less its exact
copies; `mixed` is a generated day of seed 1. Takes some minutes.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from benchmarks.quality.held_out import Labelled, labelled
from btb.traces import ReaderOptions, Trace, open_windows
from btb.traces.generate import make_windows, write_windows
from btb.traces.parameters import make_parameters
from forecasting.quality import Quality, Scores
from models import MODELS
from models.base import Features, Learner, TrainedModel
from models.counts import Counts
from models.dispersion import Dispersion
from models.ewma import Ewma

DATA = Path(__file__).parents[1].parent / "shared" / "data"
KVCT = DATA / "kvct_v8_local_sessions.compact.jsonl.zst"
SEED = 1
EWMA_HALF_LIVES_S = (5.0, 15.0, 60.0, 300.0)
ONLINE = ("hawkes", "river")
TRAINED = ("boosted", "neural")
PAIRS = (("boosted", "river"), ("boosted", "neural"))
DURATIONS_S = {"mixed": "86400", "recurring": "7200"}


class Mean:
    """The mean of what others forecast, who learn for themselves; only its spread is its own."""

    def __init__(self, *learners: Learner) -> None:
        self._learners = learners
        self._dispersion = Dispersion()

    def predict_one(self, x: Features) -> Counts:
        """Return the distribution of the number of arrivals within the horizon."""
        mean = sum(one.predict_one(x).mean for one in self._learners) / len(self._learners)
        return Counts(mean, self._dispersion.shape(mean))

    def learn_one(self, x: Features, count: int) -> None:
        """Take in that `count` arrivals followed within the horizon."""
        self._dispersion.learn(self.predict_one(x).mean, count)


def main() -> None:
    """Print a table a trace."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", default="kvct,mixed:1,recurring:2,recurring:3")
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    for name in parser.parse_args().traces.split(","):
        with opened(name) as windows:
            measure(name, windows)


@contextmanager
def opened(name: str) -> Iterator[Sequence[Trace]]:
    """Yield the windows called `name`: `kvct`, or a family and a seed, then made and deleted."""
    if name == "kvct":
        yield open_windows([KVCT], options=ReaderOptions(start_spread_s=3600.0, seed=SEED))
        return
    family, seed = name.split(":")
    with tempfile.TemporaryDirectory() as folder:
        parameters = make_parameters(family, {"duration_s": DURATIONS_S[family]})
        write_windows(Path(folder), make_windows(family, parameters, seed=int(seed), windows=1), {})
        yield open_windows([Path(folder)])


def measure(title: str, windows: Sequence[Trace]) -> None:
    """Fit to the first half, score on the second, and print how each learner did."""
    print(f"\n{title}\n| horizon | learner | deviance | below EWMA | CRPS | 80 % interval holds |")
    print("|---|---|---|---|---|---|")
    for horizon_s, samples in labelled(windows).items():
        log, rest = samples[: len(samples) // 2], samples[len(samples) // 2 :]
        known = [one for one in log if one.at_s + horizon_s < rest[0].at_s]
        frozen = {f"ewma {half_s:g} s": Ewma(horizon_s, half_s) for half_s in EWMA_HALF_LIVES_S}
        learning = {**online(horizon_s), **trained(known, horizon_s)}
        for pair in PAIRS:
            if learning.keys() >= set(pair):
                learning[" and ".join(pair)] = Mean(*(learning[name] for name in pair))
        for one in known:
            for learner in (*frozen.values(), *(learning[name] for name in ONLINE)):
                learner.learn_one(one.x, one.count)
        print_scores(horizon_s, scored(frozen, learning, rest, horizon_s))


def print_scores(horizon_s: float, scores: Mapping[str, Scores]) -> None:
    """Print a row a learner, of the EWMAs only the best."""
    ewmas = [name for name in scores if name.startswith("ewma")]
    best = min(ewmas, key=lambda name: scores[name].deviance)
    for name, one in scores.items():
        if name == best or name not in ewmas:
            below = 100.0 * (1.0 - one.deviance / scores[best].deviance)
            cells = (f"{horizon_s:g} s", name, f"{one.deviance:.4g}", f"{below:.1f} %")
            more = (f"{one.crps:.4g}", f"{100.0 * one.coverage:.1f} %")
            print(f"| {' | '.join((*cells, *more))} |", flush=True)


def online(horizon_s: float) -> dict[str, Learner]:
    """Return fresh learners that learn from each label."""
    return {name: MODELS[name](horizon_s) for name in ONLINE}


def trained(log: Sequence[Labelled], horizon_s: float) -> dict[str, Learner]:
    """Return learners fitted to `log`; names those for which it holds too little."""
    models: dict[str, Learner] = {}
    for name in TRAINED:
        model = cast(TrainedModel, MODELS[name](horizon_s))
        began_s = time.perf_counter()
        try:
            model.fit([one.x for one in log], [one.count for one in log], seed=SEED)
        except (ValueError, ModuleNotFoundError) as error:  # too little, or no torch
            print(f"| {horizon_s:g} s | {name} | {error} | | | |")
            continue
        spent_s = time.perf_counter() - began_s
        print(f"{name}: {spent_s:.1f} s to fit to {len(log):,} samples", file=sys.stderr)
        models[name] = model
    return models


def scored(
    frozen: Mapping[str, Learner],
    learning: Mapping[str, Learner],
    samples: Sequence[Labelled],
    horizon_s: float,
) -> dict[str, Scores]:
    """Return the scores of all learners, those in `learning` going on to learn from each label."""
    everyone = {**frozen, **learning}
    qualities = {name: Quality() for name in everyone}
    waiting: deque[Labelled] = deque()
    for sample in samples:
        while waiting and waiting[0].at_s + horizon_s < sample.at_s:
            due = waiting.popleft()
            for learner in reversed([*learning.values()]):  # a mean before its parts
                learner.learn_one(due.x, due.count)
        for name, learner in everyone.items():
            qualities[name].add(learner.predict_one(sample.x), sample.count)
        waiting.append(sample)
    scores = {name: quality.scores() for name, quality in qualities.items()}
    return {name: one for name, one in scores.items() if one is not None}


if __name__ == "__main__":
    main()
