"""Several learners as one: a mean of theirs, by how well each has done of late."""

from collections.abc import Mapping, Sequence
from math import exp, log
from operator import mul
from typing import Protocol, Self

from models.base import CountModel, Features, decayed_count
from models.boosted import Boosted
from models.burst_size import BurstSize
from models.counts import Counts
from models.ewma import Ewma
from models.hawkes import Hawkes
from models.river_model import RiverModel
from models.spread import Spread
from models.state import State, check_version, read_number, read_state
from models.training_log import HELD_BACK


class Expert(CountModel, Protocol):
    """A model that can say its mean without the rest, which is quicker."""

    def mean(self, x: Features) -> float:
        """Return the mean of `predict_one`."""
        ...

    def learn(self, x: Features, count: int) -> float:
        """Do what `learn_one` does, and return the mean that was forecast before."""
        ...


Kind = type[Ewma] | type[Hawkes] | type[RiverModel] | type[BurstSize] | type[Boosted]

KINDS: Mapping[str, Kind] = {
    "ewma_5s": Ewma,
    "ewma_60s": Ewma,
    "hawkes": Hawkes,
    "river": RiverModel,
    "recurrence": BurstSize,
    "boosted": Boosted,
}
"""The experts by name. `TRAINED` is there once it has been fitted to a log."""

TRAINED = "boosted"

HALF_LIVES_S = {"ewma_5s": 5.0, "ewma_60s": 60.0}
"""Half-lives of those that have one."""

PRIOR: Mapping[str, float] = {
    "ewma_5s": 0.05,
    "ewma_60s": 0.05,
    "hawkes": 0.05,
    "river": 0.45,
    "recurrence": 0.05,
    "boosted": 0.45,
}
"""How weights begin, and are drifted back to, in proportion: river is the best of the online ones
on most traffic, and only at first is it often behind; trees that have been fitted do as well."""

RATE = 0.3
"""Logarithm of the weight that an expert loses to another for each unit of deviance that it has
more. Bayes' rule for independent Poisson counts would be 0.5."""

SHARE = 1e-3
"""Share of each weight that goes back to the prior at each label, so none is ever lost for good."""

FORGET = 1.0 / 500.0
"""Weight of the newest label in the usual loss."""

RECENT = decayed_count(60.0)
"""Labels of a prefix that was asked for so often of late say much the same as those before; each
counts as one over the root of this. Labels come late, so weights that jump at each are always those
of the burst before."""

LARGEST_LOSS = 10.0
"""A loss counts as this many usual ones more than the best expert's at most."""

LEAST_MEAN = 1e-12
"""Smaller means are taken as this."""


class Combined:
    """Weighted mean of experts; fixed-share weights by their Poisson deviance.

    At each label an expert's weight is multiplied by exp(-rate x loss), its loss being its Poisson
    deviance less the best expert's. Where the usual deviance is above 1 counts scatter more than
    Poisson's: there losses are divided by it; and labels of a burst count less. Then a small share
    of all weights is dealt out anew (Herbster and Warmuth 1998). So it is soon close to
    whoever is best, follows when that changes, and may be better than all, for their errors differ.
    All experts learn from all labels. The scatter is learnt for the mean, as by every model here.

    Those that learn online are there from the start; boosted trees join them once there is a log to
    fit them to (`fit`). When traffic changes the trees stay as they are, and lose their weight.

    Parameters
    ----------
    horizon_s
        Seconds to look ahead.

    Attributes
    ----------
    weights
        Of each expert by name, in the order of `KINDS`; they add up to 1.

    Raises
    ------
    ValueError
        If `horizon_s` is not positive.

    References
    ----------
    Herbster, M. and Warmuth, M. K. (1998). Tracking the best expert. Machine Learning 32(2).
    """

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._experts: dict[str, Expert] = {
            name: _fresh(name, horizon_s) for name in KINDS if name != TRAINED
        }
        self._begin()
        self._usual = 1.0
        self._spread = Spread()

    def fit(self, xs: Sequence[Features], counts: Sequence[int], *, seed: int) -> None:
        """Fit the trees to samples in the order of time and what followed each.

        First to all but the newest fifth, which then tells the weight of trees against the others:
        these have learnt from it already, which flatters them a little. Then to everything. What
        the other experts know stays as it is.

        Raises
        ------
        ValueError
            If there are not as many counts as samples, or there is too little to learn from.
        """
        trial, trees = Boosted(self._horizon_s), Boosted(self._horizon_s)
        trees.fit(xs, counts, seed=seed)
        older = len(xs) - len(xs) // HELD_BACK
        trial.fit(xs[:older], counts[:older], seed=seed)
        self._experts[TRAINED] = trial
        self._begin()
        for x, count in zip(xs[older:], counts[older:], strict=True):
            self._weigh(x, self._means(x), count)
        self._experts[TRAINED] = trees

    def predict_one(self, x: Features) -> Counts:
        """Return the distribution of the number of arrivals within the horizon."""
        mean = self._mean(self._means(x))
        return Counts(mean, self._spread.shape(mean))

    def learn_one(self, x: Features, count: int) -> None:
        """Take in that `count` arrivals followed within the horizon."""
        means = [expert.learn(x, count) for expert in self._experts.values()]
        self._spread.learn(self._mean(means), count)
        self._weigh(x, means, count)

    def to_state(self) -> State:
        """Return all that was learnt as plain values."""
        return {
            "version": 3,
            "horizon_s": self._horizon_s,
            "weights": dict(self.weights),
            "usual": self._usual,
            "spread": self._spread.to_state(),
            "experts": {name: expert.to_state() for name, expert in self._experts.items()},
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model that `to_state` described.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        check_version(state, 3)
        model = cls(read_number(state, "horizon_s"))
        model._usual = read_number(state, "usual", low=0.0)
        model._spread = Spread.from_state(read_state(state, "spread"))
        experts, weights = read_state(state, "experts"), read_state(state, "weights")
        model._experts = {
            name: model._restored(name, experts)
            for name in KINDS
            if name != TRAINED or name in experts
        }
        model._begin()
        model.weights = {name: read_number(weights, name, low=0.0) for name in model._experts}
        if not 0.999 < sum(model.weights.values()) < 1.001:
            raise ValueError(f"weights should add up to 1, got {sum(model.weights.values())!r}")
        return model

    def _restored(self, name: str, experts: State) -> Expert:
        expert = read_state(experts, name)
        if read_number(expert, "horizon_s") != self._horizon_s:
            raise ValueError(f"experts: {name} looks ahead for another time")
        return KINDS[name].from_state(expert)

    def _begin(self) -> None:
        """Give each expert the weight that it begins with."""
        total = sum(PRIOR[name] for name in self._experts)
        self._prior = [PRIOR[name] / total for name in self._experts]
        self.weights = dict(zip(self._experts, self._prior, strict=True))

    def _means(self, x: Features) -> list[float]:
        return [expert.mean(x) for expert in self._experts.values()]

    def _mean(self, means: list[float]) -> float:
        mean: float = sum(map(mul, self.weights.values(), means))
        return mean

    def _weigh(self, x: Features, means: list[float], count: int) -> None:
        losses = [_deviance(mean, count) for mean in means]
        best = min(losses)
        self._usual += FORGET * (sum(losses) / len(losses) - self._usual)
        scale = max(self._usual, 1.0)
        rate = RATE * max(x[RECENT], 1.0) ** -0.5
        kept = [
            weight * exp(-rate * min((loss - best) / scale, LARGEST_LOSS))
            for weight, loss in zip(self.weights.values(), losses, strict=True)
        ]
        total = sum(kept)
        for name, weight, prior in zip(self._experts, kept, self._prior, strict=True):
            self.weights[name] = (1.0 - SHARE) * weight / total + SHARE * prior


def _fresh(name: str, horizon_s: float) -> Expert:
    kind = KINDS[name]
    if kind is Ewma:
        return Ewma(horizon_s, HALF_LIVES_S[name])
    return kind(horizon_s)


def _deviance(mean: float, count: int) -> float:
    """Return the unit Poisson deviance of `mean` where `count` came."""
    mean = max(mean, LEAST_MEAN)
    return 2.0 * ((count * log(count / mean) if count else 0.0) - count + mean)
