"""Boosted trees as numbers: the same forecasts, and nothing in a file that leads astray."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from models.arrays import array_state, read_array
from models.state import State, from_text, to_text
from models.trees import Trees


def rows(count: int = 600) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, 4))
    x[rng.random(x.shape) < 0.1] = np.nan
    return x, rng.poisson(np.exp(np.nan_to_num(x[:, 0]))).astype(float)


@cache
def fitted(loss: str = "poisson", **settings: object) -> HistGradientBoostingRegressor:
    model = HistGradientBoostingRegressor(loss=loss, max_iter=15, random_state=0, **settings)
    with threadpool_limits(1):
        return model.fit(*rows())


@pytest.mark.parametrize(
    ("loss", "settings", "of_total"),
    [
        ("poisson", {}, np.exp),
        ("quantile", {"quantile": 0.9}, np.asarray),
        ("squared_error", {"max_depth": 2}, np.asarray),
    ],
)
def test_totals_are_those_of_the_model_before_and_after_a_file(
    loss: str, settings: Mapping[str, object], of_total: Any
) -> None:
    model = fitted(loss, **settings)
    trees = Trees.of(model)
    text = to_text(trees.to_state())
    twin = Trees.from_state(from_text(text))
    x, _ = rows()
    totals = [trees.total(row) for row in x.tolist()]
    assert np.allclose(of_total(totals), model.predict(x), rtol=1e-12)
    assert totals == [twin.total(row) for row in x.tolist()]
    assert to_text(twin.to_state()) == text


def test_categories_are_refused() -> None:
    x, y = rows()
    x[:, 1] = np.arange(len(x)) % 5
    y = y + 9.0 * (x[:, 1] == 2)
    with threadpool_limits(1):
        model = HistGradientBoostingRegressor(categorical_features=[1]).fit(x, y)
    with pytest.raises(ValueError, match="categorical"):
        Trees.of(model)


def changed(state: State, name: str, place: int, value: float) -> State:
    """Return `state` with one element of the array `name` changed."""
    kinds = {"roots": "<i4", "left": "<i4", "right": "<i4", "feature": "<i4"}
    values = read_array(state, name, kinds.get(name, "<f8"), (None,))
    values[place] = value
    return {**state, name: array_state(values)}


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("left", 0, 100_000_000, "children should come after their parents, in the same tree"),
        ("left", 0, -1, "children should come after"),
        ("right", 1, 1, "children should come after"),  # a walk without end
        ("right", 0, 0, "children should come after"),
        ("feature", 0, 4, "features should be numbered from 0 to 3"),
        ("feature", 0, -1, "features should be numbered"),
        ("roots", 0, 1, "roots should rise from 0"),
        ("roots", -1, 10**6, "roots should rise from 0"),
        ("roots", 2, 1, "roots should rise from 0"),
        ("value", 3, np.inf, "leaves should be finite"),
        ("threshold", 0, np.nan, "threshold should hold numbers, got nan"),
    ],
)
def test_a_number_that_leads_astray_is_refused(
    name: str, place: int, value: float, message: str
) -> None:
    state = Trees.of(fitted()).to_state()
    with pytest.raises(ValueError, match=message):
        Trees.from_state(changed(state, name, place, value))


def test_a_column_of_another_length_is_refused() -> None:
    state = Trees.of(fitted()).to_state()
    short = array_state(read_array(state, "left", "<i4", (None,))[:-1])
    with pytest.raises(ValueError, match="of one length"):
        Trees.from_state({**state, "left": short})


@pytest.mark.parametrize("kind", ["<f4", "<f8", "<i4", "<i8", "|u1"])
def test_an_array_comes_back_as_it_was(kind: str) -> None:
    values = np.arange(6).reshape(2, 3).astype(kind)
    state = from_text(to_text({"a": array_state(values)}))
    back = read_array(state, "a", kind, (2, None))
    assert back.dtype == values.dtype
    assert (back == values).all()
    assert (
        read_array({"a": array_state(values[:, ::2])}, "a", kind, (2, 2)) == values[:, ::2]
    ).all()


def test_what_is_no_array_of_numbers_is_not_kept() -> None:
    for values in (np.array([object()]), np.array(["text"]), np.array([1j])):
        with pytest.raises(ValueError, match="elements should be one of"):
            array_state(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "|O"}, "should be of type <f8, got '|O'"),
        ({"shape": [2, 3]}, r"should have the shape \(3, None\), got \[2, 3\]"),
        ({"shape": [3]}, "shape should have 2 numbers, got 1"),
        ({"shape": [3, -1]}, r"shape\[1\] should lie in"),
        ({"shape": [3, 10**9]}, "data should have 24000000000 bytes, got 48"),
        ({"data": "text"}, "data should be bytes, got 'text'"),
        ({"data": b""}, "data should have 48 bytes, got 0"),
    ],
)
def test_an_array_that_is_not_what_it_should_be_is_refused(
    change: Mapping[str, Any], message: str
) -> None:
    state = {**array_state(np.zeros((3, 2))), **change}
    with pytest.raises(ValueError, match=message):
        read_array({"a": state}, "a", "<f8", (3, None))
