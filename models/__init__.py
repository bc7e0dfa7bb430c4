"""Learners: features in, a distribution of counts out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module

from models.base import HORIZONS_S, CountModel
from models.state import State


@dataclass(frozen=True, slots=True)
class Learner:
    """A kind of model that ships with us, imported when the first one is made.

    >>> MODELS["ewma"](15.0).predict_one({"count_hl_15s": 0.0}).mean
    0.0
    """

    module: str
    kind: str

    def __call__(self, horizon_s: float) -> CountModel:
        """Return a fresh model that looks `horizon_s` ahead."""
        make: Callable[[float], CountModel] = getattr(import_module(self.module), self.kind)
        return make(horizon_s)

    def from_state(self, state: State) -> CountModel:
        """Return the model that `state` describes.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        kind: type[CountModel] = getattr(import_module(self.module), self.kind)
        return kind.from_state(state)


MODELS: Mapping[str, Learner] = {
    "ewma": Learner("models.ewma", "Ewma"),
    "hawkes": Learner("models.hawkes", "Hawkes"),
    "river": Learner("models.river_model", "RiverModel"),
    "recurrence": Learner("models.burst_size", "BurstSize"),
    "boosted": Learner("models.boosted", "Boosted"),
    "combined": Learner("models.combiner", "Combined"),
}
"""The learners by name. One file and one line here make a new one."""


def learner(name: str) -> Learner:
    """Return the learner called `name`.

    Raises
    ------
    ValueError
        If nothing is called `name`; says what comes nearest.

    Examples
    --------
    >>> learner("riber")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: no model is called 'riber'; did you mean 'river'? Known are ewma, hawkes, river, ...
    """
    if name in MODELS:
        return MODELS[name]
    near = get_close_matches(name, MODELS, n=1)
    hint = f" did you mean {near[0]!r}? Known are" if near else " known are"
    raise ValueError(f"no model is called {name!r};{hint} {', '.join(MODELS)}")


def make_models(name: str, horizons: Iterable[float] = HORIZONS_S) -> dict[float, CountModel]:
    """Return a fresh model called `name` for each horizon in seconds.

    Raises
    ------
    ValueError
        If nothing is called `name`.
    """
    make = learner(name)
    return {horizon_s: make(horizon_s) for horizon_s in horizons}
