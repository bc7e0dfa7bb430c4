"""What a group of features is worth: the same learner, told the same of them always."""

from collections.abc import Collection, Mapping, Sequence

from models.base import HALF_LIVES_S, Features, Fitted, Learner, decayed_count
from models.checks import TYPICAL
from models.counts import Counts

GROUPS: Mapping[str, frozenset[str]] = {
    "counts": frozenset((*map(decayed_count, HALF_LIVES_S), "arrivals")),
    "gaps": frozenset(name for name in TYPICAL if name.startswith("gap_")),
    "lengths": frozenset(("depth_tokens", "input_tokens", "input_growth_tokens")),
    "bursts": frozenset(name for name in TYPICAL if "burst" in name),
    "others": frozenset(
        name for name in TYPICAL if name.startswith(("parent_", "tenant_", "global_", "sibling_"))
    ),
    "age": frozenset(("age_s", "since_last_s")),
}
"""Groups of features by name; each feature is in one."""


class Without:
    """A learner that some features are kept from: they have their typical value for it.

    Parameters
    ----------
    learner
        Who learns from what is left.
    names
        Features that it does not see.

    Examples
    --------
    >>> from models.ewma import Ewma
    >>> blind = Without(Ewma(15.0, half_life_s=15.0), GROUPS["counts"])
    >>> blind.predict_one(TYPICAL) == blind.predict_one({**TYPICAL, "count_hl_15s": 100.0})
    True
    """

    def __init__(self, learner: Learner, names: Collection[str]) -> None:
        self._learner = learner
        self._kept_from = {name: TYPICAL[name] for name in names}

    def predict_one(self, x: Features) -> Counts:
        """Return the forecast without them."""
        return self._learner.predict_one({**x, **self._kept_from})

    def learn_one(self, x: Features, count: int) -> None:
        """Learn without them."""
        self._learner.learn_one({**x, **self._kept_from}, count)

    def fit(self, xs: Sequence[Features], counts: Sequence[int], *, seed: int) -> None:
        """Fit without them, if the learner is one to be fitted.

        Raises
        ------
        ValueError
            If there is too little to learn from.
        """
        if isinstance(self._learner, Fitted):
            self._learner.fit([{**x, **self._kept_from} for x in xs], counts, seed=seed)
