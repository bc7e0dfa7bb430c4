from collections.abc import Callable

import pytest

from forecasting.features import FEATURE_NAMES
from models import MODELS, make_models
from models.base import HORIZONS_S, CountModel, Features
from models.checks import CHECKS, TYPICAL, check_learns_a_constant_rate
from models.counts import Counts
from models.ewma import Ewma

Make = Callable[[float], CountModel]
Check = Callable[[Make], None]

MAKERS: dict[str, Make] = {
    **MODELS,
    "ewma_300s": lambda horizon_s: Ewma(horizon_s, half_life_s=300.0),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
@pytest.mark.parametrize("name", MAKERS)
def test_every_model(name: str, check: Check) -> None:
    check(MAKERS[name])


def test_the_checks_use_the_features_that_the_forecaster_makes() -> None:
    assert tuple(TYPICAL) == FEATURE_NAMES


def test_a_model_that_never_learns_is_caught() -> None:
    class Stubborn(Ewma):
        def learn_one(self, x: Features, count: int) -> None:
            pass

    with pytest.raises(AssertionError, match="expected 3"):
        check_learns_a_constant_rate(Stubborn)


def test_a_model_that_peeks_is_caught() -> None:
    class Peeking(Ewma):
        def predict_one(self, x: Features) -> Counts:
            self.learn_one(x, 1)
            return super().predict_one(x)

    caught = []
    for check in CHECKS:
        try:
            check(Peeking)
        except AssertionError:
            caught.append(check.__name__)
    assert "check_predicting_changes_nothing" in caught


def test_models_are_made_for_every_horizon() -> None:
    assert tuple(make_models("ewma")) == HORIZONS_S
    assert tuple(make_models("hawkes", [2.0])) == (2.0,)


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'hawkes'"):
        make_models("hawks")


@pytest.mark.parametrize("name", MODELS)
def test_a_horizon_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match="horizon_s"):
        MODELS[name](0.0)
