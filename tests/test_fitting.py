"""Models that are fitted to the log of a pass: when, and to what."""

from collections.abc import Sequence

import pytest

from btb.errors import ConfigError
from btb.fitting import FIRST_FIT, FittingLog
from models.base import Features
from models.checks import TYPICAL
from models.ewma import Ewma


class Fitted(Ewma):
    """Notes to how many labels it was fitted, and the newest count."""

    def __init__(self) -> None:
        super().__init__(15.0)
        self.fits: list[tuple[int, int]] = []
        self.refuses = False

    def fit(self, xs: Sequence[Features], counts: Sequence[int], *, seed: int) -> None:
        if self.refuses:
            raise ValueError("too little")
        self.fits.append((len(xs), counts[-1]))


def test_models_are_fitted_each_time_the_log_has_doubled_and_at_the_end() -> None:
    model = Fitted()
    labels = FittingLog([model, Ewma(15.0)], seed=1)
    for k in range(4 * FIRST_FIT + 5):
        labels.add(TYPICAL, k)
    labels.fit()
    labels.fit()  # nothing is new
    sizes = [FIRST_FIT, 2 * FIRST_FIT, 4 * FIRST_FIT, 4 * FIRST_FIT + 5]
    assert model.fits == [(size, size - 1) for size in sizes]


def test_a_package_that_is_missing_is_named() -> None:
    class Needy(Fitted):
        def fit(self, xs: Sequence[Features], counts: Sequence[int], *, seed: int) -> None:
            raise ModuleNotFoundError("fitting takes torch: pip install it")

    labels = FittingLog([Needy()], seed=1)
    labels.add(TYPICAL, 1)
    with pytest.raises(ConfigError, match="takes torch"):
        labels.fit()


def test_a_log_that_holds_too_little_is_no_error() -> None:
    model = Fitted()
    model.refuses = True
    labels = FittingLog([model], seed=1)
    labels.add(TYPICAL, 1)
    labels.fit()
    assert model.fits == []
