"""Progressive training: predict, wait for the label, learn, and score what was predicted."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from btb.contest import Contest, Verdict, decide
from btb.errors import ConfigError
from btb.fitting import FittingLog
from btb.traces import Trace
from forecasting.labels import LabelQueue
from forecasting.quality import Quality, Scores
from forecasting.tracker import PrefixTracker, Sample
from models.base import Learner
from models.checkpoint import Checkpoint
from models.counts import Counts
from models.ewma import Ewma
from models.hawkes import Hawkes

BASELINE_HALF_LIVES_S = (5.0, 15.0, 60.0, 300.0)
"""Half-lives of the EWMAs in every pass. The one that turns out best is *the* EWMA baseline: it is
chosen in hindsight, which no forecaster could, so beating it means something."""

MAX_WAITING = 1_000_000
"""Samples whose labels may be outstanding at a time; some 60 s at 16,000 requests a second."""

REPORT_EVERY = 256
"""Requests between two calls of `on_rows`."""

HEADLINE_S = 15.0
"""The horizon that verdicts are about: long enough to copy a prefix in, short enough to matter."""

FEWEST_ARRIVALS = 10
"""Where fewer came after all forecasts together, nobody can be told from a guess."""

CHAMPION = "champion"
"""Name of the learner that was the best so far, where it goes along."""

LearnerModels = Mapping[float, Learner]
"""A model a horizon in seconds."""


@dataclass(slots=True)
class Pass:
    """What came of one pass over some traces.

    Parameters
    ----------
    qualities
        Scores, by learner and horizon in seconds.
    baselines
        Names of those among the learners that are EWMAs.
    arrivals, samples
        Requests read, and those whose prompt reaches the boundary, so that there is a forecast.
    unlabelled
        Forecasts, by horizon, that are not scored: their horizon ends after the last request of
        the window, so nobody knows what would have come.
    dropped
        Samples that were left out, for too many were outstanding.
    contests
        The first learner against the champion, by horizon in seconds, where there is one.
    """

    qualities: dict[str, dict[float, Quality]]
    baselines: tuple[str, ...]
    arrivals: int = 0
    samples: int = 0
    unlabelled: dict[float, int] = field(default_factory=dict)
    dropped: int = 0
    contests: dict[float, Contest] = field(default_factory=dict)

    def scores(self, name: str, horizon_s: float, since: float = 0.0) -> Scores:
        """Return the scores of a learner, over the labels after the first `since` of all.

        Raises
        ------
        ConfigError
            If no forecast got a label: the traces are shorter than the horizon, or too shallow.
        """
        scores = self.qualities[name][horizon_s].scores(since)
        if scores is None:
            raise ConfigError(
                f"of {self.arrivals} requests {self.samples} reach the boundary, and none has "
                f"{horizon_s:g} s of trace after it: nothing to score"
            )
        return scores

    def best_baseline(self, horizon_s: float) -> str:
        """Return the EWMA with the least Poisson deviance at this horizon, in hindsight."""
        return min(self.baselines, key=lambda name: self.scores(name, horizon_s).deviance)

    @property
    def headline_s(self) -> float:
        """The horizon nearest to `HEADLINE_S`."""
        return nearest_headline(next(iter(self.qualities.values())))

    @property
    def verdict(self) -> Verdict | None:
        """Whether the first learner is to be champion, None where there is none so far.

        Judged on the later half: of the windows or, where there is one only, of its minutes.
        """
        if not self.contests:
            return None
        standings = {h: contest.standing(later_half=True) for h, contest in self.contests.items()}
        return decide(standings, self.headline_s)

    def too_few(self, horizon_s: float) -> bool:
        """Return whether so few requests came within this horizon that skill means nothing."""
        scores = self.scores(self.baselines[0], horizon_s)
        return scores.came * scores.labels < FEWEST_ARRIVALS

    def skill(self, name: str, horizon_s: float, since: float = 0.0) -> float:
        """Return the share of the best EWMA's Poisson deviance that the learner does without."""
        best = self.scores(self.best_baseline(horizon_s), horizon_s, since).deviance
        return 1.0 - self.scores(name, horizon_s, since).deviance / best if best else 0.0


def nearest_headline(horizons: Iterable[float]) -> float:
    """Return the horizon nearest to `HEADLINE_S`."""
    return min(horizons, key=lambda horizon_s: abs(horizon_s - HEADLINE_S))


def baselines(horizons: Iterable[float]) -> dict[str, LearnerModels]:
    """Return the fresh EWMAs that every learner is held against, by name."""
    horizons_s = tuple(horizons)
    return {
        f"ewma {half_life_s:g} s": {h: Ewma(h, half_life_s) for h in horizons_s}
        for half_life_s in BASELINE_HALF_LIVES_S
    }


def run_pass(
    windows: Sequence[Trace],
    learners: Mapping[str, LearnerModels],
    *,
    boundary_tokens: int,
    frozen: Collection[str] = (),
    seed: int = 0,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Pass:
    """Let `learners` predict and learn over whole windows in their order; return their scores.

    EWMAs and, unless one is among the learners, a Hawkes process go along. All see the same
    features at the same time. A prefix is forgotten at the end of its window, what a learner knows
    is not. A forecast is made at each request whose prompt reaches the boundary, scored and learnt
    from when its horizon has passed. The learners given, which share their horizons, are changed,
    but for those named in `frozen`, which predict and don't learn. Those that are fitted to a log
    are fitted to the labels known so far each time these have doubled, and to all at the end;
    `seed` is that of their draws.

    Raises
    ------
    ConfigError
        If a window says nothing of prefixes.
    """
    check_prefixes(windows)
    horizons_s = sorted(next(iter(learners.values())))
    against = baselines(horizons_s)
    hawkes: LearnerModels = {horizon_s: Hawkes(horizon_s) for horizon_s in horizons_s}
    everyone = {"hawkes": hawkes, **against, **learners}
    outcome = Pass(
        qualities={name: {h: Quality() for h in horizons_s} for name in everyone},
        baselines=tuple(against),
        contests={h: Contest() for h in horizons_s} if CHAMPION in learners else {},
        unlabelled=dict.fromkeys(horizons_s, 0),
    )
    challenger = next(iter(learners))
    logs = {
        horizon_s: FittingLog(
            [models[horizon_s] for name, models in learners.items() if name not in frozen], seed
        )
        for horizon_s in horizons_s
    }
    for number, window in enumerate(windows):
        way = _Window(outcome, everyone, frozen, boundary_tokens, number, challenger, logs)
        way.run(window, on_rows)
    for labels in logs.values():
        labels.fit()
    return outcome


def check_prefixes(windows: Iterable[Trace]) -> None:
    """Make sure that every window tells which requests begin alike.

    Raises
    ------
    ConfigError
        If one doesn't.
    """
    for window in windows:
        if not window.has_prefixes:
            raise ConfigError(
                f"{window.name} (read as {window.fmt}) says nothing of prefixes: its rows don't "
                "tell which requests begin alike, so there is nothing to forecast by prefix"
            )


def trained(start: Checkpoint, windows: Iterable[Trace]) -> Checkpoint:
    """Return `start`, whose models went through `windows`, with their digests noted."""
    seen = {window.name: window.digest for window in windows}
    return replace(start, traces={**start.traces, **seen})


class _Window:
    """The learners' way through one window, with prefixes and labels of its own."""

    def __init__(
        self,
        outcome: Pass,
        learners: Mapping[str, LearnerModels],
        frozen: Collection[str],
        boundary_tokens: int,
        number: int,
        challenger: str,
        logs: Mapping[float, FittingLog],
    ) -> None:
        self._outcome = outcome
        self._number = number
        self._logs = logs
        names = list(learners)
        self._pair = [names.index(one) for one in (CHAMPION, challenger) if one in names]
        self._tracker = PrefixTracker(boundary_tokens)
        self._labels = LabelQueue(outcome.unlabelled, MAX_WAITING)
        self._learners = {
            horizon_s: [
                (models[horizon_s], outcome.qualities[name][horizon_s], name not in frozen)
                for name, models in learners.items()
            ]
            for horizon_s in outcome.unlabelled
        }
        # Labels come in the order of their samples, so forecasts need no key.
        self._made: dict[float, deque[list[Counts]]] = {h: deque() for h in self._learners}

    def run(self, window: Trace, on_rows: Callable[[int], None]) -> None:
        outcome, labels = self._outcome, self._labels
        for number, arrival in enumerate(window, start=1):
            self._learn(arrival.at_s)
            sample = self._tracker.observe(arrival)
            if sample is not None:
                self._predict(sample)
            if number % REPORT_EVERY == 0:
                on_rows(REPORT_EVERY)
        outcome.arrivals += self._tracker.arrivals
        outcome.samples += self._tracker.arrivals - self._tracker.short
        outcome.dropped += labels.dropped
        for horizon_s, waiting in self._made.items():
            outcome.unlabelled[horizon_s] += len(waiting)
        on_rows(self._tracker.arrivals % REPORT_EVERY)

    def _predict(self, sample: Sample) -> None:
        dropped = self._labels.dropped
        self._labels.add(sample)
        if self._labels.dropped > dropped:
            return
        for horizon_s, learners in self._learners.items():
            forecasts = [model.predict_one(sample.x) for model, _, _ in learners]
            self._made[horizon_s].append(forecasts)

    def _learn(self, now_s: float) -> None:
        for label in self._labels.due(now_s):
            made = self._made[label.horizon_s].popleft()
            x, count = label.sample.x, label.count
            learners = self._learners[label.horizon_s]
            contest = self._outcome.contests.get(label.horizon_s)
            if contest is not None:
                was, new = (made[place].mean for place in self._pair)
                at_s = label.sample.at_s
                contest.add(self._number, at_s, champion=was, challenger=new, count=count)
            for forecast, (model, quality, learns) in zip(made, learners, strict=True):
                quality.add(forecast, count)
                if learns:
                    model.learn_one(x, count)
            self._logs[label.horizon_s].add(x, count)
