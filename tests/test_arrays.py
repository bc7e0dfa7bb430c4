"""Arrays in a state: what comes back, and what is refused."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from models.arrays import array_state, read_array
from models.state import from_text, to_text


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


def test_a_float_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="a should hold numbers, got nan"):
        read_array({"a": array_state(np.array([1.0, np.nan]))}, "a", "<f8", (2,))


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
