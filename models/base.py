"""What every learner here can do."""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

from models.counts import Counts
from models.state import State

HORIZONS_S: tuple[float, ...] = (1.0, 5.0, 15.0, 60.0)
"""How far ahead forecasts look, in seconds."""

HALF_LIVES_S: tuple[float, ...] = (1.0, 5.0, 15.0, 60.0, 300.0, 1800.0)
"""Half-lives of the decayed arrival counts that every learner gets as features."""

Features = Mapping[str, float]
"""What is known of a prefix at one moment: finite numbers by name (`forecasting/features.py`)."""


def decayed_count(half_life_s: float) -> str:
    """Return the name of the feature that counts arrivals, each halved every `half_life_s`.

    >>> decayed_count(15.0)
    'count_hl_15s'
    """
    return f"count_hl_{half_life_s:g}s"


class Learner(Protocol):
    """Predicts how many more arrivals a prefix gets within one horizon, from its features.

    One learner serves all prefixes: what it knows of a single one is in the features, so a prefix
    that was never seen before already gets an answer, and memory does not grow with prefixes.
    `learn_one` changes the learner, `predict_one` never does, and a fresh one already predicts.
    """

    def predict_one(self, x: Features) -> Counts:
        """Return the distribution of the number of arrivals within the horizon."""
        ...

    def learn_one(self, x: Features, count: int) -> None:
        """Take in that `count` arrivals followed within the horizon, where `x` was known."""
        ...


class CountModel(Learner, Protocol):
    """A learner whose state can be kept, as plain JSON values.

    It is made from its horizon in seconds. `models.checks` holds every model to all of this.
    """

    def to_state(self) -> State:
        """Return all that was learnt as plain JSON values; `from_state` goes on from there."""
        ...

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model that `to_state` described.

        Raises
        ------
        ValueError
            If a value is missing or is not what it should be; the message names it.
        """
        ...


class TrainedModel(CountModel, Protocol):
    """A model whose main part is fitted to a log, all of it at once, and frozen until the next fit.

    Before the first fit it is some cheap online model. Afterwards `learn_one` only adjusts the scale
    and the spread of what the frozen part says.
    """

    def fit(self, xs: Sequence[Features], counts: Sequence[int], *, seed: int) -> None:
        """Forget what was fitted, and fit to samples in the order of time and what followed each.

        The last of them, a fifth or so, decide when to stop and how far counts scatter.

        Raises
        ------
        ValueError
            If there are not as many counts as samples, or too few samples, or too few arrivals, to
            learn from; the model is as it was then.
        """
        ...
