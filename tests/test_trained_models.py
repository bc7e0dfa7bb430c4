import json
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest

from models import MODELS
from models.base import CountModel, TrainedModel
from models.boosted import Boosted
from models.checks import CHECKS, TYPICAL
from models.neural import Neural
from models.state import State
from models.trained_checks import TRAINED_CHECKS, busy_and_quiet, fitted

NETWORK = Path(__file__).parent / "data" / "neural.json"
"""State of a `Neural` fitted by torch to `busy_and_quiet`: see `tests/test_neural.py`."""

TRAINED: dict[str, Callable[[float], TrainedModel]] = {"boosted": Boosted, "neural": Neural}

without_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@cache
def state(name: str) -> str:
    if name == "neural":
        return NETWORK.read_text(encoding="utf-8")
    return json.dumps(fitted(TRAINED[name]).to_state())


def after_a_fit(name: str) -> Callable[[float], CountModel]:
    def make(horizon_s: float) -> CountModel:
        return MODELS[name].from_state({**json.loads(state(name)), "horizon_s": horizon_s})

    return make


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
@pytest.mark.parametrize("name", TRAINED)
def test_fitted_models_do_what_all_do(
    name: str, check: Callable[[Callable[[float], CountModel]], None]
) -> None:
    check(after_a_fit(name))


@pytest.mark.parametrize("check", TRAINED_CHECKS, ids=lambda check: str(check.__name__))
@pytest.mark.parametrize("name", ["boosted", pytest.param("neural", marks=without_torch)])
def test_every_model_can_be_fitted(
    name: str, check: Callable[[Callable[[float], TrainedModel]], None]
) -> None:
    check(TRAINED[name])


@pytest.mark.parametrize("name", TRAINED)
def test_what_was_fitted_stays_while_it_learns(name: str) -> None:
    model = after_a_fit(name)(15.0)
    before = cast(dict[str, Any], model.to_state())
    for k in range(200):
        model.learn_one(TYPICAL, k % 7)
    after = cast(dict[str, Any], model.to_state())
    assert after["fitted"] == before["fitted"]
    assert after["calibration"] != before["calibration"]


@pytest.mark.parametrize("name", TRAINED)
def test_a_change_of_scale_is_followed_without_a_new_fit(name: str) -> None:
    model = after_a_fit(name)(15.0)
    before = model.predict_one(TYPICAL).mean
    for x, count in zip(*busy_and_quiet(), strict=True):
        for _ in range(4):
            model.learn_one(x, 3 * count)
    assert model.predict_one(TYPICAL).mean == pytest.approx(3.0 * before, rel=0.1)


def test_a_fresh_model_is_a_hawkes_process() -> None:
    hawkes = MODELS["hawkes"](15.0)
    models = [Boosted(15.0), Neural(15.0)]
    for k in range(300):
        for model in (hawkes, *models):
            model.learn_one(TYPICAL, k % 3)
    for model in models:
        assert model.predict_one(TYPICAL) == hawkes.predict_one(TYPICAL)


def broken(name: str, path: str, value: object) -> State:
    """Return the state of a fitted model, of which one value is `value`, or gone if None."""
    content = json.loads(state(name))
    *parents, last = path.split(".")
    at: Any = content
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at[key]
    key_or_number = int(last) if isinstance(at, list) else last
    if value is None:
        del at[key_or_number]
    else:
        at[key_or_number] = value
    return cast(State, content)


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("boosted", "version", 9, "version should be 1, got 9"),
        ("boosted", "fitted", 3, "fitted should be an object, got 3"),
        ("boosted", "fitted", None, "fitted should be an object, got None"),
        ("boosted", "fitted.features.1", "moon", r"features\[1\] is not known: 'moon'"),
        ("boosted", "fitted.features.1", "count_hl_1s", "comes twice: 'count_hl_1s'"),
        ("boosted", "fitted.features", [], r"trees\[\d+\]: inputs should be whole and below 0"),
        ("boosted", "fitted.trees", {}, "trees should be a list of at most 512"),
        ("boosted", "fitted.trees", [], "a forest should have 1 to 512 trees, got 0"),
        ("boosted", "fitted.trees.1", 7, r"trees\[1\] should be an object, got 7"),
        ("boosted", "fitted.trees.1.inputs.0", 99, "inputs should be whole and below"),
        ("boosted", "fitted.trees.1.inputs.0", 0.5, "inputs should be whole"),
        ("boosted", "fitted.trees.1.inputs.0", -1, r"trees\[1\]: the tree ends at node 1"),
        ("boosted", "fitted.trees.1.inputs", [0] * 64, "at most 63 numbers, got 64"),
        ("boosted", "fitted.trees.1.numbers.0", "x", r"numbers\[0\] should be a finite number"),
        ("boosted", "fitted.trees.1.numbers.0", None, r"trees\[1\]: \d+ inputs but \d+ numbers"),
        ("neural", "fitted.gaps.0", "gap_moon_s", r"gaps\[0\] is not known"),
        ("neural", "fitted.context.0", None, "center should have"),
        ("neural", "fitted.spread.0", 0.0, r"spread\[0\] should lie in"),
        ("neural", "fitted.memory", None, "memory should be a list of numbers"),
        ("neural", "fitted.second.3", None, "second should have 1024 numbers, got 1023"),
        ("neural", "fitted.out.0", 1e7, r"out should not be above 1e\+06"),
        ("neural", "fitted.out.0", -1e7, r"out\[0\] should lie in"),
    ],
)
def test_a_wrong_state_is_refused(name: str, path: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MODELS[name].from_state(broken(name, path, value))
