"""Arrays of numbers in a state: their type, shape and bytes, and nothing that could be run.

It is how NumPy arrays and the tensors of a neural network are kept:

    def to_state(self):
        return {"version": 1, "weights": array_state(tensor.detach().numpy())}

    def from_state(cls, state):
        weights = read_array(state, "weights", "<f4", (64, 32))
        tensor.copy_(torch.from_numpy(weights))
"""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.state import State, read_bytes, read_numbers, read_state

TYPES = ("<f4", "<f8", "<i4", "<i8", "|u1")
"""Element types that are kept, as NumPy writes them: little-endian floats and integers, bytes."""


def array_state(values: NDArray[Any]) -> State:
    r"""Return `values` as a state.

    Raises
    ------
    ValueError
        If their type is none of `TYPES`.

    Examples
    --------
    >>> array_state(np.array([[1, 2]], dtype="<i4"))
    {'type': '<i4', 'shape': [1, 2], 'data': b'\x01\x00\x00\x00\x02\x00\x00\x00'}
    """
    kind = values.dtype.newbyteorder("<").str
    if kind not in TYPES:
        raise ValueError(f"elements should be one of {', '.join(TYPES)}, got {kind}")
    data = np.ascontiguousarray(values, dtype=kind).tobytes()
    return {"type": kind, "shape": list(values.shape), "data": data}


def read_array(state: State, name: str, kind: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """Return the array called `name`, whose type and shape are known; None is any length.

    Raises
    ------
    ValueError
        If it is missing, of another type or shape, holds more or less than that, or a float in it
        is not a number.
    """
    array = read_state(state, name)
    if array.get("type") != kind:
        raise ValueError(f"{name} should be of type {kind}, got {array.get('type')!r:.60}")
    found = [int(length) for length in read_numbers(array, "shape", len(shape), low=0.0)]
    if any(want not in (None, length) for want, length in zip(shape, found, strict=True)):
        raise ValueError(f"{name} should have the shape {shape}, got {found}")
    data = read_bytes(array, "data", prod(found) * np.dtype(kind).itemsize)
    values = np.frombuffer(data, dtype=kind).reshape(found).copy()
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError(f"{name} should hold numbers, got nan")
    return values
