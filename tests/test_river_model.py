import random
from collections.abc import Hashable
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river.compose import Pipeline
from river.preprocessing import StandardScaler

from forecasting.features import FEATURE_NAMES
from models.base import Features
from models.checks import TYPICAL, varied
from models.hawkes import Hawkes
from models.regression import PRIOR_VARIANCE, NegativeBinomialRegression
from models.river_model import RiverModel
from models.shortcut import Shortcut
from models.snapshot import Snapshot
from models.terms import LOGGED, TERMS, terms, without_prior


def test_a_fresh_model_is_a_hawkes_process() -> None:
    assert RiverModel(15.0).predict_one(TYPICAL).mean == Hawkes(15.0).predict_one(TYPICAL).mean


def test_all_that_it_looks_at_is_there() -> None:
    assert set(LOGGED) <= set(FEATURE_NAMES)
    assert tuple(terms(TYPICAL, 1.0)) == TERMS


def test_it_learns_what_hawkes_cannot_see() -> None:
    # After a gap below 5 s six more come, after a longer one none; counts say nothing.
    chance = random.Random(1)
    river, hawkes = RiverModel(15.0), Hawkes(15.0)
    for _ in range(3000):
        gap_s = chance.choice([1.0, 20.0])
        x = {**TYPICAL, "gap_last_s": gap_s}
        count = 6 if gap_s < 5.0 else 0
        river.learn_one(x, count)
        hawkes.learn_one(x, count)
    short: Features = {**TYPICAL, "gap_last_s": 1.0}
    long: Features = {**TYPICAL, "gap_last_s": 20.0}
    assert river.predict_one(short).mean == pytest.approx(6.0, rel=0.1)
    assert river.predict_one(long).mean < 0.3
    assert hawkes.predict_one(short).mean == pytest.approx(3.0, rel=0.1)


def test_no_forecast_passes_twice_the_largest_count_seen() -> None:
    model = RiverModel(15.0)
    for k in range(500):
        scale = 1.0 + k % 5
        model.learn_one({name: value * scale for name, value in TYPICAL.items()}, 30 * (k % 5))
    huge = {name: value * 1e6 for name, value in TYPICAL.items()}
    assert model.predict_one(huge).mean <= 2.0 * 120.0


def test_a_steady_stream_is_no_drift_and_a_changed_one_is() -> None:
    rng = np.random.default_rng(2)
    model = RiverModel(15.0)
    for k in range(11_000):
        scales = np.exp(rng.normal(0.0, 0.7, len(TYPICAL)))
        x = {
            name: value * scale
            for (name, value), scale in zip(TYPICAL.items(), scales, strict=True)
        }
        mean = 3.0 if k < 10_000 else 0.3
        model.learn_one(x, int(rng.poisson(mean * (x["count_hl_15s"] / 2.6) ** 0.5)))
        if k == 9_999:
            assert model.drifts == 0
    assert model.drifts >= 1
    assert model.predict_one(TYPICAL).mean < 0.6


def test_the_regression_finds_the_weights_that_made_the_counts() -> None:
    rng = np.random.default_rng(3)
    regression = NegativeBinomialRegression(["a", "b"])
    for _ in range(20_000):
        a, b = rng.normal(size=2)
        mean = 0.5 * np.exp(1.0 + 0.6 * a - 0.4 * b)
        shape = 3.0
        count = rng.negative_binomial(shape, shape / (shape + mean))
        regression.learn_one({"a": a, "b": b}, float(count), exposure=0.5)
    assert regression.weights == pytest.approx([0.6, -0.4, 1.0], abs=0.12)


@settings(max_examples=200)
@given(
    terms=st.lists(st.floats(-10.0, 10.0), min_size=3, max_size=3),
    count=st.integers(0, 1_000_000),
    exposure=st.floats(1e-6, 1e4),
    w=st.floats(0.01, 1.0),
)
def test_a_label_moves_the_forecast_towards_it_and_not_past_it(
    terms: list[float], count: int, exposure: float, w: float
) -> None:
    names = ["a", "b", "c"]
    x: dict[Hashable, float] = dict(zip(names, terms, strict=True))
    regression = NegativeBinomialRegression(names)
    before = regression.predict_one(x, exposure=exposure)
    regression.learn_one(x, count, exposure=exposure, w=w)
    after = regression.predict_one(x, exposure=exposure)
    slack = 1e-5 * before
    assert min(before, count) - slack <= after <= max(before, count) + slack


def test_a_term_that_was_constant_for_long_does_no_harm_when_it_moves() -> None:
    regression = NegativeBinomialRegression(["still", "moving"])
    for k in range(50_000):
        regression.learn_one({"still": 0.0, "moving": float(k % 3 - 1)}, 2)
    assert regression.covariance.diagonal().max() <= PRIOR_VARIANCE * (1.0 + 1e-9)
    regression.learn_one({"still": 3.0, "moving": 0.0}, 500)
    assert 1.8 < regression.predict_one({"still": 0.0, "moving": 0.0}) < 20.0


def test_weights_that_are_sure_become_unsure_on_doubt() -> None:
    regression = NegativeBinomialRegression(["a"])
    for k in range(2000):
        regression.learn_one({"a": float(k % 2)}, 2)
    sure = regression.covariance.diagonal().max()
    regression.doubt()
    assert sure < 0.2 * PRIOR_VARIANCE
    assert regression.covariance.diagonal().min() > 0.7 * PRIOR_VARIANCE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terms": ["a"]}, "terms are not those"),
        ({"covariance": [0.0] * (len(TERMS) + 1) ** 2}, "positive definite"),
        ({"weights": [0.0]}, f"weights should have {len(TERMS) + 1} numbers, got 1"),
        ({"largest": 3.0}, "largest should lie in"),
        ({"checks": [0.1] * 1000}, "checks should have at most 256"),
        ({"hawkes": 5}, "hawkes should be an object"),
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, object], message: str) -> None:
    state = {**RiverModel(15.0).to_state(), **change}
    with pytest.raises(ValueError, match=message):
        RiverModel.from_state(cast("dict[str, None]", state))


def test_a_shortcut_says_what_the_pipeline_says() -> None:
    rng = np.random.default_rng(5)
    scaler = StandardScaler()
    regression = NegativeBinomialRegression(TERMS)
    pipeline = Pipeline(scaler, regression)
    for _ in range(300):
        x = {
            name: float(value)
            for name, value in zip(TYPICAL, rng.exponential(9.0, len(TYPICAL)), strict=True)
        }
        x["age_s"] = 7.0  # a term that never varies
        prior = float(rng.exponential(2.0))
        expected = pipeline.predict_one(terms(x, prior), exposure=prior)
        shortcut = Shortcut(scaler, regression)
        assert shortcut.predict(without_prior(x), prior) == pytest.approx(expected, rel=1e-9)
        pipeline.learn_one(terms(x, prior), int(rng.poisson(x["count_hl_15s"])), exposure=prior)
    far = {name: value * 1e6 for name, value in TYPICAL.items()}  # terms are pulled in
    expected = pipeline.predict_one(terms(far, 1.0), exposure=1.0)
    assert Shortcut(scaler, regression).predict(without_prior(far), 1.0) == pytest.approx(expected)


def test_a_model_forecasts_the_same_for_a_snapshot_and_a_dictionary() -> None:
    by_dictionary, by_snapshot = RiverModel(15.0), RiverModel(15.0)
    for x, count in varied(200):
        kept = Snapshot(x.items())
        assert by_dictionary.predict_one(x) == by_snapshot.predict_one(kept)
        by_dictionary.learn_one(x, count)
        by_snapshot.learn_one(kept, count)
