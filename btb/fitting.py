"""Fits models to the log of a pass each time that has doubled: none is scored on what it saw."""

import logging
from collections import deque
from collections.abc import Sequence

from btb.errors import ConfigError
from models.base import Features, Fitted, Learner

FIRST_FIT = 2_000
"""Labels at which models are fitted for the first time; then at twice as many, and so on."""

MOST_KEPT = 200_000
"""Latest labels kept and fitted to."""

log = logging.getLogger(__name__)


class FittingLog:
    """Labels of one horizon in the order of time, and the models that are fitted to them.

    Parameters
    ----------
    models
        Those of them that can be fitted are.
    seed
        Of their draws.
    """

    def __init__(self, models: Sequence[Learner], seed: int) -> None:
        self._models = [model for model in models if isinstance(model, Fitted)]
        self._seed = seed
        self._labels: deque[tuple[Features, int]] = deque(maxlen=MOST_KEPT)
        self._seen = self._fitted = 0
        self._next = FIRST_FIT

    def add(self, x: Features, count: int) -> None:
        """Keep a label, and fit if there are twice as many as the last time."""
        if not self._models:
            return
        self._labels.append((x, count))
        self._seen += 1
        if self._seen >= self._next:
            self._next *= 2
            self.fit()

    def fit(self) -> None:
        """Fit to all that is kept, unless that has been done; too little is no error.

        Raises
        ------
        ConfigError
            If a package that fitting takes is not installed.
        """
        if not self._models or self._fitted == self._seen:
            return
        self._fitted = self._seen
        xs, counts = zip(*self._labels, strict=True)
        for model in self._models:
            try:
                model.fit(xs, counts, seed=self._seed)
            except ValueError as error:
                log.info("not fitted: %s", error)
            except ModuleNotFoundError as error:  # an optional package
                raise ConfigError(str(error)) from error
