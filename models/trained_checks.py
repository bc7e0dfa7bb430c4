"""What every model that is fitted to a log has to do, beside `models.checks`; for ours, and yours.

    from models.trained_checks import TRAINED_CHECKS
    for check in TRAINED_CHECKS:
        check(MyModel)

Each takes what makes a fresh model from a horizon in seconds. `models.checks` should hold for
fitted models too: `fitted` makes them.
"""

import json
from collections.abc import Callable
from typing import cast

from models.base import Features, TrainedModel
from models.checks import HORIZON_S, TYPICAL
from models.state import State

Make = Callable[[float], TrainedModel]


def busy_and_quiet() -> tuple[list[Features], list[int]]:
    """Return a log of busy and quiet prefixes: as many arrivals follow as each is busy.

    Every feature is up to 10 times that of `TYPICAL`, and so many arrivals follow, or up to two
    more.
    """
    scales = [(1 + k * 7919 % 40) / 4.0 for k in range(2_000)]
    xs: list[Features] = [
        {name: value * scale for name, value in TYPICAL.items()} for scale in scales
    ]
    return xs, [round(scale) + k * 31 % 3 for k, scale in enumerate(scales)]


def fitted(make: Make, horizon_s: float = HORIZON_S) -> TrainedModel:
    """Return a model that is fitted to `busy_and_quiet`."""
    model = make(horizon_s)
    xs, counts = busy_and_quiet()
    model.fit(xs, counts, seed=1)
    return model


def check_a_fit_tells_busy_from_quiet(make: Make) -> None:
    """To a quarter."""
    model = fitted(make)
    for scale in (2.0, 5.0, 9.0):
        mean = model.predict_one({name: value * scale for name, value in TYPICAL.items()}).mean
        assert abs(mean / (scale + 1.0) - 1.0) < 0.25, f"{mean}, expected {scale + 1.0}"


def check_the_same_seed_gives_the_same_fit(make: Make) -> None:
    """No chance of its own."""
    assert _plain(fitted(make)) == _plain(fitted(make))


def check_a_fit_forgets_the_one_before(make: Make) -> None:
    """A model fitted twice is the same as one fitted once, whatever it was told in between."""
    model = fitted(make)
    for _ in range(100):
        model.learn_one(TYPICAL, 50)
    model.fit(*busy_and_quiet(), seed=1)
    assert model.predict_one(TYPICAL) == fitted(make).predict_one(TYPICAL)


def check_a_fit_survives_json(make: Make) -> None:
    """A fitted model written as JSON and read again predicts the same."""
    model = fitted(make)
    text = _plain(model)
    twin = type(model).from_state(cast(State, json.loads(text)))
    for x in busy_and_quiet()[0][:40]:
        assert model.predict_one(x) == twin.predict_one(x), "the copy predicts something else"
    assert _plain(twin) == text


def check_too_little_is_refused(make: Make) -> None:
    """ValueError, and the model is as it was."""
    xs, counts = busy_and_quiet()
    for few_xs, few_counts in (
        (xs[:50], counts[:50]),
        (xs, counts[:-1]),
        (xs, [0] * len(xs)),
    ):
        model = make(HORIZON_S)
        before = _plain(model)
        try:
            model.fit(few_xs, few_counts, seed=1)
        except ValueError:
            assert _plain(model) == before, "the model was changed"
        else:
            raise AssertionError("a fit to too little was not refused")


def _plain(model: TrainedModel) -> str:
    return json.dumps(model.to_state(), allow_nan=False)


TRAINED_CHECKS: tuple[Callable[[Make], None], ...] = (
    check_a_fit_tells_busy_from_quiet,
    check_the_same_seed_gives_the_same_fit,
    check_a_fit_forgets_the_one_before,
    check_a_fit_survives_json,
    check_too_little_is_refused,
)
"""All of the above."""
