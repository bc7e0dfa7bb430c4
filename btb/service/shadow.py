"""The challenger in the champion's shadow: it forecasts the same, and nobody acts on it."""

from collections.abc import Callable
from time import perf_counter

from btb.contest import Contest
from btb.training import LearnerModels
from forecasting.tracker import Sample
from models.base import Features

BLOCKS = 720
"""Minutes whose losses are kept: the latest twelve hours."""

MAX_PENDING = 10_000
"""Forecasts a horizon that may wait for what came. While there are as many, none is made."""

ADAPT_S = 1.0
"""How often the share of arrivals is set anew, by what it took."""

Pending = tuple[Features, float, float, float]
"""Features that a forecast was made from, when, and the means of champion and challenger."""


class Shadow:
    """Scores a challenger against the champion on the same samples, in bounded time and memory.

    Both forecast when a sample is made, and are scored when its label comes; then the challenger
    learns from it. Where that takes more than a share of the time, only every second sample is
    taken, then every fourth, and so on, and the other way once there is time.

    Parameters
    ----------
    champion, challenger
        A model for each horizon in seconds, the same horizons. The champion is only asked.
    window_s
        Length of a serving window; contests are told in which one a sample was made.
    share
        Most of a core's time that may be used.
    clock
        Seconds of some clock, to measure that with.

    Attributes
    ----------
    contests
        By horizon in seconds.
    stride
        One in so many samples is taken.
    """

    def __init__(
        self,
        champion: LearnerModels,
        challenger: LearnerModels,
        *,
        window_s: float,
        share: float,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.contests = {horizon_s: Contest(BLOCKS) for horizon_s in challenger}
        self.stride = 1
        self._champion, self._challenger = champion, challenger
        self._window_s, self._share, self._clock = window_s, share, clock
        self._pending: dict[float, dict[int, Pending]] = {h: {} for h in sorted(challenger)}
        self._offered = 0
        self._since_s = clock()
        self._spent_s = 0.0

    def foresee(self, sample: Sample) -> None:
        """Have both forecast what follows `sample`, if it is one that is taken."""
        self._offered += 1
        if self._offered % self.stride:
            return
        started_s = self._clock()
        self._drop_orphans(sample.at_s)
        if all(len(waiting) < MAX_PENDING for waiting in self._pending.values()):
            x = sample.x
            for horizon_s, waiting in self._pending.items():
                means = (
                    self._champion[horizon_s].predict_one(x).mean,
                    self._challenger[horizon_s].predict_one(x).mean,
                )
                # By identity, which is safe as long as the features are held here.
                waiting[id(x)] = (x, sample.at_s, *means)
        self._account(started_s)

    def learn(self, horizon_s: float, x: Features, count: int) -> None:
        """Score the forecasts that were made from `x`, if there are any, and learn from it."""
        made = self._pending[horizon_s].pop(id(x), None)
        if made is None:
            return
        started_s = self._clock()
        _, at_s, champion, challenger = made
        window = int(at_s // self._window_s)
        self.contests[horizon_s].add(
            window, at_s, champion=champion, challenger=challenger, count=count
        )
        self._challenger[horizon_s].learn_one(x, count)
        self._account(started_s)

    def _drop_orphans(self, now_s: float) -> None:
        """Let go of forecasts whose labels have been due: their samples were dropped."""
        for horizon_s, waiting in self._pending.items():
            while waiting:
                oldest = next(iter(waiting))
                if waiting[oldest][1] + horizon_s >= now_s:
                    break
                del waiting[oldest]

    def _account(self, started_s: float) -> None:
        now_s = self._clock()
        self._spent_s += now_s - started_s
        passed_s = now_s - self._since_s
        if passed_s < ADAPT_S:
            return
        used = self._spent_s / passed_s
        if used > self._share:
            self.stride *= 2
        elif used < self._share / 4.0 and self.stride > 1:
            self.stride //= 2
        self._since_s, self._spent_s = now_s, 0.0
