"""Several learners as one: a mean of theirs, by how well each has done of late."""

from collections.abc import Mapping
from math import exp, log
from typing import Self

from models.base import CountModel, Features
from models.burst_size import BurstSize
from models.counts import Counts
from models.dispersion import Dispersion
from models.ewma import Ewma
from models.hawkes import Hawkes
from models.river_model import RiverModel
from models.state import State, check_version, read_number, read_numbers, read_state

KINDS: Mapping[str, type[Ewma] | type[Hawkes] | type[RiverModel] | type[BurstSize]] = {
    "ewma_5s": Ewma,
    "ewma_60s": Ewma,
    "hawkes": Hawkes,
    "river": RiverModel,
    "recurrence": BurstSize,
}
"""The experts by name."""

HALF_LIVES_S = {"ewma_5s": 5.0, "ewma_60s": 60.0}
"""Half-lives of those that have one."""

PRIOR = (0.075, 0.075, 0.075, 0.7, 0.075)
"""Weights to begin with, in the order of `KINDS`, which are also drifted back to: river is best on
most traffic, and only at first is it often behind."""

RATE = 0.02
"""Logarithm of the weight that an expert loses to another whose loss is lower by the usual loss.
Labels of a burst say much the same, so each counts for little."""

SHARE = 1e-3
"""Share of each weight that goes back to the prior at each label, so none is ever lost for good."""

FORGET = 1.0 / 500.0
"""Weight of the newest label in the usual loss."""

LARGEST_LOSS = 10.0
"""A loss counts as this many usual ones more than the best expert's at most."""

LEAST_MEAN, LEAST_LOSS = 1e-12, 1e-12
"""Smaller means and usual losses are taken as this."""


class Combined:
    """Weighted mean of experts; fixed-share weights by their Poisson deviance.

    At each label an expert's weight is multiplied by exp(-rate x loss), its loss being its Poisson
    deviance less the best expert's, over the usual deviance; then a small share of all weights is
    dealt out anew (Herbster and Warmuth 1998). So it is soon close to whoever is best, follows when
    that changes, and may be better than all, for their errors differ. All experts learn from all
    labels. The scatter is learnt for the mean, as by every model here.

    Parameters
    ----------
    horizon_s
        Seconds to look ahead.

    Attributes
    ----------
    weights
        Of each expert in the order of `KINDS`; they add up to 1.

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
        self._experts: list[CountModel] = [
            Ewma(horizon_s, HALF_LIVES_S[name]) if name in HALF_LIVES_S else kind(horizon_s)
            for name, kind in KINDS.items()
        ]
        self.weights = list(PRIOR)
        self._usual = 1.0
        self._dispersion = Dispersion()

    def predict_one(self, x: Features) -> Counts:
        """Return the distribution of the number of arrivals within the horizon."""
        mean = self._mean(self._means(x))
        return Counts(mean, self._dispersion.shape(mean))

    def learn_one(self, x: Features, count: int) -> None:
        """Take in that `count` arrivals followed within the horizon."""
        means = self._means(x)
        self._dispersion.learn(self._mean(means), count)
        self._weigh([_deviance(mean, count) for mean in means])
        for expert in self._experts:
            expert.learn_one(x, count)

    def to_state(self) -> State:
        """Return all that was learnt as plain JSON values."""
        return {
            "version": 1,
            "horizon_s": self._horizon_s,
            "weights": list(self.weights),
            "usual": self._usual,
            "dispersion": self._dispersion.to_state(),
            "experts": {
                name: expert.to_state() for name, expert in zip(KINDS, self._experts, strict=True)
            },
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model that `to_state` described.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        check_version(state, 1)
        model = cls(read_number(state, "horizon_s"))
        model.weights = read_numbers(state, "weights", len(KINDS), low=0.0)
        if not 0.999 < sum(model.weights) < 1.001:
            raise ValueError(f"weights should add up to 1, got {sum(model.weights)!r}")
        model._usual = read_number(state, "usual", low=LEAST_LOSS)
        model._dispersion = Dispersion.from_state(read_state(state, "dispersion"))
        experts = read_state(state, "experts")
        model._experts = []
        for name, kind in KINDS.items():
            expert = read_state(experts, name)
            if read_number(expert, "horizon_s") != model._horizon_s:
                raise ValueError(f"experts: {name} looks ahead for another time")
            model._experts.append(kind.from_state(expert))
        return model

    def _means(self, x: Features) -> list[float]:
        return [expert.predict_one(x).mean for expert in self._experts]

    def _mean(self, means: list[float]) -> float:
        return sum(weight * mean for weight, mean in zip(self.weights, means, strict=True))

    def _weigh(self, losses: list[float]) -> None:
        best = min(losses)
        self._usual += FORGET * (sum(losses) / len(losses) - self._usual)
        self._usual = max(self._usual, LEAST_LOSS)
        kept = [
            weight * exp(-RATE * min((loss - best) / self._usual, LARGEST_LOSS))
            for weight, loss in zip(self.weights, losses, strict=True)
        ]
        total = sum(kept)
        self.weights = [
            (1.0 - SHARE) * weight / total + SHARE * prior
            for weight, prior in zip(kept, PRIOR, strict=True)
        ]


def _deviance(mean: float, count: int) -> float:
    """Return the unit Poisson deviance of `mean` where `count` came."""
    mean = max(mean, LEAST_MEAN)
    return 2.0 * ((count * log(count / mean) if count else 0.0) - count + mean)
