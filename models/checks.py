"""What every model has to do, as functions; for ours, and for yours.

    from models.checks import CHECKS
    for check in CHECKS:
        check(MyModel)

Each takes what makes a model from a horizon in seconds, and raises AssertionError, with the reason,
where the model doesn't hold to `models.base.CountModel`.
"""

import json
from collections.abc import Callable, Iterator
from math import isfinite
from typing import cast

from models.base import CountModel, Features
from models.state import State

TYPICAL: Features = {
    "count_hl_1s": 1.3,
    "count_hl_5s": 1.9,
    "count_hl_15s": 2.6,
    "count_hl_60s": 3.5,
    "count_hl_300s": 3.9,
    "count_hl_1800s": 4.0,
    "arrivals": 4.0,
    "gap_last_s": 1.7,
    "gap_prev_s": 6.0,
    "gap_3_s": 13.3,
    "gap_4_s": 86_400.0,
    "gap_5_s": 86_400.0,
    "gap_6_s": 86_400.0,
    "gap_7_s": 86_400.0,
    "gap_8_s": 86_400.0,
    "gap_share_15s": 0.8,
    "gap_share_60s": 0.9,
    "since_last_s": 0.0,
    "age_s": 21.0,
    "depth_tokens": 2048.0,
    "input_tokens": 9_000.0,
    "input_growth_tokens": 700.0,
    "parent_count_hl_60s": 8.0,
    "parent_count_hl_300s": 20.0,
    "tenant_count_hl_60s": 12.0,
    "tenant_count_hl_300s": 40.0,
    "global_count_hl_60s": 30.0,
    "global_count_hl_300s": 110.0,
    "sibling_repeat_share": 0.3,
    "bursts_seen": 1.0,
    "burst_size": 4.0,
    "last_burst_size": 0.0,
    "since_burst_start_s": 21.0,
    "burst_interval_s": 86_400.0,
}
"""Features of a prefix in the middle of some traffic, as `forecasting.features` makes them."""

HORIZON_S = 15.0


def varied(labels: int) -> Iterator[tuple[Features, int]]:
    """Yield features that differ, each with the count that followed, the same every time."""
    for k in range(labels):
        scale = 0.25 + (k * 7919 % 97) / 24.0
        yield {name: value * scale for name, value in TYPICAL.items()}, int(scale * 3.0) % 11


def check_a_fresh_model_already_predicts(make: Callable[[float], CountModel]) -> None:
    """The first request of a prefix gets an answer."""
    counts = make(HORIZON_S).predict_one(TYPICAL)
    assert isfinite(counts.mean), counts
    assert counts.mean >= 0.0, counts


def check_predicting_changes_nothing(make: Callable[[float], CountModel]) -> None:
    """Asking in between gives the same model as not asking."""
    asked, quiet = make(HORIZON_S), make(HORIZON_S)
    for x, count in varied(100):
        first, again = asked.predict_one(x), asked.predict_one(x)
        assert first == again, "the same question got two answers"
        asked.learn_one(x, count)
        quiet.learn_one(x, count)
    assert _plain(asked) == _plain(quiet), "predict_one changed the state"


def check_forecasts_are_finite_and_not_negative(make: Callable[[float], CountModel]) -> None:
    """Whatever finite features come, before learning, after, and after learning from them."""
    model = make(HORIZON_S)
    odd: list[Features] = [dict.fromkeys(TYPICAL, value) for value in (0.0, 1e-12, 1e9, 1e300)]
    odd += [{**TYPICAL, name: 1e12} for name in TYPICAL]
    for _ in range(3):
        for x in odd:
            mean = model.predict_one(x).mean
            assert isfinite(mean), f"forecast {mean} for {x}"
            assert mean >= 0.0, f"forecast {mean} for {x}"
            model.learn_one(x, 3)
        for x, count in varied(50):
            model.learn_one(x, count)


def check_zeros_drive_the_forecast_towards_zero(make: Callable[[float], CountModel]) -> None:
    """Where nothing ever follows, less and less is forecast."""
    model = make(HORIZON_S)
    means = [model.predict_one(TYPICAL).mean]
    for labels in (30, 300, 3000):
        for _ in range(labels):
            model.learn_one(TYPICAL, 0)
        means.append(model.predict_one(TYPICAL).mean)
    assert means == sorted(means, reverse=True), f"means went up: {means}"
    assert means[-1] < 0.01, f"still {means[-1]} after 3,330 zeros"


def check_learns_a_constant_rate(make: Callable[[float], CountModel]) -> None:
    """Three of four times 2 and else 6 is 3 on average, to 10 %."""
    model = make(HORIZON_S)
    for k in range(3000):
        model.learn_one(TYPICAL, 6 if k % 4 == 0 else 2)
    mean = model.predict_one(TYPICAL).mean
    assert 2.7 < mean < 3.3, f"forecast {mean}, expected 3"


def check_tells_busy_from_quiet(make: Callable[[float], CountModel]) -> None:
    """A prefix with ten times the recent arrivals, and ten times what follows, is forecast more."""
    model = make(HORIZON_S)
    busy = {name: value * 10.0 for name, value in TYPICAL.items()}
    for _ in range(500):
        model.learn_one(TYPICAL, 1)
        model.learn_one(busy, 10)
    assert model.predict_one(busy).mean > 3.0 * model.predict_one(TYPICAL).mean


def check_state_survives_json(make: Callable[[float], CountModel]) -> None:
    """A model written as JSON and read again predicts the same, and goes on learning the same."""
    model = make(HORIZON_S)
    for x, count in varied(200):
        model.learn_one(x, count)
    text = json.dumps(model.to_state(), allow_nan=False)
    twin = type(model).from_state(cast(State, json.loads(text)))
    for x, count in varied(300):
        assert model.predict_one(x) == twin.predict_one(x), "the copy predicts something else"
        model.learn_one(x, count)
        twin.learn_one(x, count)
    assert _plain(model) == _plain(twin), "the copy learns something else"


def check_same_labels_give_the_same_state(make: Callable[[float], CountModel]) -> None:
    """No chance of its own."""
    one, other = make(HORIZON_S), make(HORIZON_S)
    for x, count in varied(200):
        one.learn_one(x, count)
        other.learn_one(x, count)
    assert _plain(one) == _plain(other)


def check_state_is_bounded(make: Callable[[float], CountModel]) -> None:
    """Ten times the labels need no more than twice the room."""
    model = make(HORIZON_S)
    for x, count in varied(1_000):
        model.learn_one(x, count)
    size = len(_plain(model))
    for x, count in varied(9_000):
        model.learn_one(x, count)
    assert len(_plain(model)) < 2 * size + 10_000, f"{size} bytes grew to {len(_plain(model))}"


def check_keeps_no_hold_of_its_features(make: Callable[[float], CountModel]) -> None:
    """Changing features after the call changes nothing, and the call doesn't change them."""
    one, other = make(HORIZON_S), make(HORIZON_S)
    reused: dict[str, float] = {}
    for x, count in varied(100):
        reused.clear()
        reused.update(x)
        one.learn_one(reused, count)
        one.predict_one(reused)
        assert reused == x, "the features were changed"
        other.learn_one(x, count)
    assert _plain(one) == _plain(other), "the features were kept by reference"


def _plain(model: CountModel) -> str:
    return json.dumps(model.to_state(), allow_nan=False)


CHECKS: tuple[Callable[[Callable[[float], CountModel]], None], ...] = (
    check_a_fresh_model_already_predicts,
    check_predicting_changes_nothing,
    check_forecasts_are_finite_and_not_negative,
    check_zeros_drive_the_forecast_towards_zero,
    check_learns_a_constant_rate,
    check_tells_busy_from_quiet,
    check_state_survives_json,
    check_same_labels_give_the_same_state,
    check_state_is_bounded,
    check_keeps_no_hold_of_its_features,
)
"""All of the above."""
