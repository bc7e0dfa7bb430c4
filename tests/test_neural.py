"""The network, with weights that torch 2.13 fitted to `busy_and_quiet`: `tests/data/neural.json`.

`python tests/test_neural.py`, where torch is installed, writes that file again.
"""

import json
from math import exp, log, tanh
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from models.neural import MEMORY, WIDTH, Inputs, Network, Neural, shapes
from models.state import State
from models.trained_checks import busy_and_quiet, fitted
from models.training_log import TrainingLog

STORED = Path(__file__).parent / "data" / "neural.json"


def network(changes: dict[str, Any], gaps: int = 2, context: int = 1) -> Network:
    """Return a network whose weights are 0 but for `changes`, with inputs that need no scaling."""
    size = gaps + context
    names = tuple(f"input {k}" for k in range(size))
    inputs = Inputs(names[:gaps], names[gaps:], np.zeros(size), np.ones(size))
    weights = {name: np.zeros(shape) for name, shape in shapes(context).items()}
    for name, (where, value) in changes.items():
        weights[name][where] = value
    return Network(inputs, weights)


def silu(x: float) -> float:
    return x / (1.0 + exp(-x))


def test_without_weights_the_bias_is_the_answer() -> None:
    assert network({"out_bias": (0, log(3.0))}).log_mean([5.0, 2.0, 9.0]) == log(3.0)


def test_the_context_goes_through_two_layers() -> None:
    # A value of e - 1 has the logarithm 1.
    one_path = network({"first": ((0, MEMORY), 2.0), "second": ((0, 0), 1.5), "out": ((0, 0), 1.0)})
    assert one_path.log_mean([0.0, 0.0, exp(1.0) - 1.0]) == pytest.approx(silu(1.5 * silu(2.0)))


def test_the_recurrent_unit_by_hand() -> None:
    # With all gates at 1/2, the memory m goes to (tanh(gap + m / 2) + m) / 2 at each gap.
    unit = network(
        {
            "gap": (2 * MEMORY, 1.0),
            "memory": ((2 * MEMORY, 0), 1.0),
            "first": ((0, 0), 1.0),
            "second": ((0, 0), 1.0),
            "out": ((0, 0), 1.0),
        }
    )
    memory = tanh(1.0) / 2.0
    memory = (tanh(2.0 + memory / 2.0) + memory) / 2.0
    gaps = [exp(1.0) - 1.0, exp(2.0) - 1.0]
    assert unit.log_mean([*gaps, 0.0]) == pytest.approx(silu(silu(memory)))


def test_far_from_what_was_fitted_to_inputs_are_pulled_in() -> None:
    one_path = network({"first": ((0, MEMORY), 1.0), "second": ((0, 0), 1.0), "out": ((0, 0), 1.0)})
    far, farther = exp(4.0) - 1.0, 1e300
    assert one_path.log_mean([0.0, 0.0, farther]) == one_path.log_mean([0.0, 0.0, far])
    assert one_path.log_mean([0.0, 0.0, -far]) != one_path.log_mean([0.0, 0.0, far])


def test_gaps_are_taken_oldest_first_and_others_traffic_is_left_out() -> None:
    names = ("gap_last_s", "global_count_hl_60s", "gap_prev_s", "age_s", "gap_3_s", "depth_tokens")
    table = np.arange(18.0).reshape(3, 6)
    table[:, 5] = 2048.0  # never changes
    inputs = Inputs.of(TrainingLog(names, table, np.zeros(3)))
    assert inputs.gaps == ("gap_3_s", "gap_prev_s", "gap_last_s")
    assert inputs.context == ("age_s",)


def test_it_says_what_torch_said() -> None:
    content = json.loads(STORED.read_text(encoding="utf-8"))
    body = Neural._read(cast(State, content["fitted"]))
    for x, expected in zip(rows(), content["torch_says"], strict=True):
        found = body.log_mean([x[name] for name in body.names])
        assert found == pytest.approx(expected, abs=1e-5)


def test_a_fit_ends_as_torch_would_go_on() -> None:
    torch = pytest.importorskip("torch")
    model = fitted(Neural)
    body = cast(Network, cast(Neural, model)._body)
    for x, expected in zip(rows(), torch_says(torch, body), strict=True):
        found = body.log_mean([x[name] for name in body.names])
        assert found == pytest.approx(expected, abs=1e-5)


def test_without_torch_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'bite-the-bullet\[torch\]'"):
        fitted(Neural)


def rows() -> list[dict[str, float]]:
    return [dict(x) for x in busy_and_quiet()[0][:40]]


def torch_says(torch: Any, body: Network) -> list[float]:
    """Return what torch's own layers say of `rows` with the weights of `body`."""
    weights = {k: torch.tensor(v, dtype=torch.float32) for k, v in body._weights.items()}
    table = np.array([[x[name] for name in body.names] for x in rows()])
    x = torch.tensor(body._inputs.scaled(table), dtype=torch.float32)
    gaps = len(body._inputs.gaps)
    unit = torch.nn.GRU(1, MEMORY, batch_first=True)
    with torch.no_grad():
        unit.weight_ih_l0.copy_(weights["gap"][:, None])
        unit.bias_ih_l0.copy_(weights["gap_bias"])
        unit.weight_hh_l0.copy_(weights["memory"])
        unit.bias_hh_l0.copy_(weights["memory_bias"])
        z = torch.cat([unit(x[:, :gaps, None])[1][0], x[:, gaps:]], dim=1)
        for layer in ("first", "second"):
            z = torch.nn.functional.linear(z, weights[layer], weights[f"{layer}_bias"])
            z = torch.nn.functional.silu(z)
        out = torch.nn.functional.linear(z, weights["out"], weights["out_bias"])
    assert z.shape == (len(x), WIDTH)
    return cast(list[float], out[:, 0].tolist())


def store() -> None:
    import torch

    model = cast(Neural, fitted(Neural))
    content = {**model.to_state(), "torch_says": torch_says(torch, cast(Network, model._body))}
    STORED.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    store()
