"""The models that a running service forecasts with, and how others take their place."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from btb.service.shadow import Shadow
from btb.training import LearnerModels
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from models.base import Features, Learner
from models.counts import Counts

log = logging.getLogger(__name__)


class Stage:
    """Where the champion answers, and the challenger in its shadow. Used from one thread.

    Attributes
    ----------
    shadow
        The contest that goes on, None without a challenger.
    failure
        Why the last challenger was dismissed, "" if it wasn't.
    """

    def __init__(self, champion: LearnerModels) -> None:
        self.champion = champion
        self.shadow: Shadow | None = None
        self.failure = ""
        self.seats: Mapping[float, Learner] = {h: _Seat(self, h) for h in champion}

    def put(self, champion: LearnerModels, shadow: Shadow | None) -> None:
        """Have `champion` answer from now on, for all horizons at once, and begin a new contest."""
        self.champion, self.shadow, self.failure = champion, shadow, ""

    def in_shadow(self, step: Callable[[Shadow], None]) -> None:
        """Let the challenger take a step; should it fail, it is dismissed, and nothing else."""
        if self.shadow is None:
            return
        try:
            step(self.shadow)
        except Exception as error:  # a challenger may be anybody's, and must not be in the way
            log.exception("the challenger failed and is dismissed")
            self.failure = f"{type(error).__name__}: {error}"
            self.shadow = None


@dataclass(frozen=True, slots=True)
class _Seat:
    """What the forecaster takes for a learner: whoever is champion."""

    stage: Stage
    horizon_s: float

    def predict_one(self, x: Features) -> Counts:
        return self.stage.champion[self.horizon_s].predict_one(x)

    def learn_one(self, x: Features, count: int) -> None:
        self.stage.champion[self.horizon_s].learn_one(x, count)
        self.stage.in_shadow(lambda shadow: shadow.learn(self.horizon_s, x, count))


class LiveForecaster(Forecaster):
    """A forecaster whose models may change while it runs; what it knows of prefixes stays."""

    def __init__(self, stage: Stage, *, boundary_tokens: int) -> None:
        super().__init__(stage.seats, boundary_tokens=boundary_tokens)
        self._stage = stage

    def observe(self, arrival: Arrival) -> None:
        """Learn what is due by now, count `arrival`, and have the challenger forecast, too."""
        super().observe(arrival)
        sample = self._newest
        if sample is not None:
            self._stage.in_shadow(lambda shadow: shadow.foresee(sample))
