"""A small recurrent network over a prefix's latest gaps, fitted by torch, run by numpy."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from models.checks import TYPICAL
from models.state import State, read_names, read_numbers
from models.trained import Body, Trained
from models.training_log import TrainingLog

Array = NDArray[np.float64]

MEMORY, WIDTH = 16, 32
"""Numbers that the recurrent unit remembers, and in each of the two layers after it."""

LARGEST_INPUT = 4.0
"""Scaled inputs beyond are pulled in: far from what was fitted to, a network says anything."""

LARGEST_WEIGHT = 1e6
"""No weight is larger, so that no sum overflows."""

_GAP = re.compile(r"gap_(last|prev|\d+)_s")
_OF_OTHERS = ("parent_", "tenant_", "global_")


class Neural(Trained):
    """A recurrent point process: the history of a prefix is what a GRU makes of its latest gaps.

    The logarithms of the gaps between the latest arrivals go through a gated recurrent unit, oldest
    first. What it remembers in the end and the logarithms of the other features go through two
    layers, which say the mean of a negative binomial; and its shape, which fitting needs, while the
    spread of forecasts comes from `models.dispersion`. All prefixes share the weights. How much
    traffic others have is left out: that tells more of the day that the log is from.

    Parameters
    ----------
    horizon_s
        Seconds to look ahead.

    Raises
    ------
    ValueError
        If `horizon_s` is not positive.

    References
    ----------
    Du, N., Dai, H., Trivedi, R., Upadhyay, U., Gomez-Rodriguez, M. and Song, L. (2016). Recurrent
    marked temporal point processes: embedding event history to vector. KDD 2016.

    Cho, K., van Merriënboer, B., Gulcehre, C., Bahdanau, D., Bougares, F., Schwenk, H. and Bengio,
    Y. (2014). Learning phrase representations using RNN encoder-decoder for statistical machine
    translation. EMNLP 2014.
    """

    @staticmethod
    def _fitted(log: TrainingLog, seed: int) -> tuple["Network", "Network"]:
        from models.neural_fit import fit_weights

        inputs = Inputs.of(log)
        table = inputs.scaled(log.columns(inputs.names))
        older, newer = slice(None, log.split), slice(log.split, None)
        gaps = len(inputs.gaps)
        trial, passes = fit_weights(
            table[older],
            log.counts[older],
            gaps,
            seed=seed,
            stop_by=(table[newer], log.counts[newer]),
        )
        whole, _ = fit_weights(table, log.counts, gaps, seed=seed, passes=passes)
        return Network(inputs, trial), Network(inputs, whole)

    @staticmethod
    def _read(state: State) -> "Network":
        inputs = Inputs.read(state)
        weights: dict[str, Array] = {}
        for name, shape in shapes(len(inputs.context)).items():
            values = np.array(read_numbers(state, name, prod(shape), low=-LARGEST_WEIGHT))
            if (largest := values.max()) > LARGEST_WEIGHT:
                raise ValueError(f"{name} should not be above {LARGEST_WEIGHT:g}, got {largest!r}")
            weights[name] = values.reshape(shape)
        return Network(inputs, weights)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the network looks at, and how it is scaled.

    Parameters
    ----------
    gaps
        Features that are gaps between arrivals, oldest first.
    context
        Other features.
    center, spread
        Mean and standard deviation of the logarithm of each of them, in the same order.
    """

    gaps: tuple[str, ...]
    context: tuple[str, ...]
    center: Array
    spread: Array

    @classmethod
    def of(cls, log: TrainingLog) -> Self:
        """Return the inputs that are there in `log`, less those that never change."""
        gaps = tuple(name for name in reversed(log.names) if _GAP.fullmatch(name))
        context = tuple(
            name
            for name, column in zip(log.names, log.table.T, strict=True)
            if name not in gaps and not name.startswith(_OF_OTHERS) and np.ptp(column) > 0.0
        )
        logs = _logarithm(log.columns(gaps + context))
        return cls(gaps, context, logs.mean(axis=0), np.maximum(logs.std(axis=0), 1e-3))

    @classmethod
    def read(cls, state: State) -> Self:
        """Return the inputs that `to_state` described."""
        gaps, context = read_names(state, "gaps", TYPICAL), read_names(state, "context", TYPICAL)
        size = len(gaps) + len(context)
        center = np.array(read_numbers(state, "center", size))
        return cls(gaps, context, center, np.array(read_numbers(state, "spread", size, low=1e-3)))

    @property
    def names(self) -> tuple[str, ...]:
        """All of them: the gaps, oldest first, and the context."""
        return self.gaps + self.context

    def scaled(self, values: Array) -> Array:
        """Return `values` of `names`, (inputs,) or (samples, inputs), as the network takes them."""
        scaled = (_logarithm(values) - self.center) / self.spread
        return np.clip(scaled, -LARGEST_INPUT, LARGEST_INPUT)


class Network(Body):
    """The network with its weights, as numpy runs it.

    Parameters
    ----------
    inputs
        What it looks at.
    weights
        By the names and in the shapes of `shapes`.
    """

    def __init__(self, inputs: Inputs, weights: Mapping[str, Array]) -> None:
        self.names = inputs.names
        self._inputs = inputs
        self._weights = dict(weights)

    def log_mean(self, row: Sequence[float]) -> float:
        """Return the logarithm of the mean count, for the values of `names` in their order."""
        x, gaps = self._inputs.scaled(np.array(row)), len(self._inputs.gaps)
        w = self._weights
        z = np.concatenate([self._remember(x[:gaps]), x[gaps:]])
        z = _silu(w["first"] @ z + w["first_bias"])
        z = _silu(w["second"] @ z + w["second_bias"])
        return float(w["out"][0] @ z + w["out_bias"][0])

    def to_state(self) -> State:
        """Return all of it as plain JSON values."""
        inputs = self._inputs
        return {
            "gaps": list(inputs.gaps),
            "context": list(inputs.context),
            "center": inputs.center.tolist(),
            "spread": inputs.spread.tolist(),
            **{name: values.ravel().tolist() for name, values in self._weights.items()},
        }

    def _remember(self, gaps: Array) -> Array:
        """Return what the recurrent unit remembers after `gaps`, from oldest to newest."""
        w = self._weights
        seen = np.outer(gaps, w["gap"]) + w["gap_bias"]
        memory = np.zeros(MEMORY)
        for step in seen:
            known = w["memory"] @ memory + w["memory_bias"]
            gates = _sigmoid(step[: 2 * MEMORY] + known[: 2 * MEMORY])
            reset, keep = gates[:MEMORY], gates[MEMORY:]
            new = np.tanh(step[2 * MEMORY :] + reset * known[2 * MEMORY :])
            memory = new + keep * (memory - new)
        return memory


def shapes(context: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by name, for so many features beside the gaps.

    Of the recurrent unit's, thirds of the first axis are the gates reset and keep, and what is new.
    """
    return {
        "gap": (3 * MEMORY,),
        "gap_bias": (3 * MEMORY,),
        "memory": (3 * MEMORY, MEMORY),
        "memory_bias": (3 * MEMORY,),
        "first": (WIDTH, MEMORY + context),
        "first_bias": (WIDTH,),
        "second": (WIDTH, WIDTH),
        "second_bias": (WIDTH,),
        "out": (2, WIDTH),
        "out_bias": (2,),
    }


def _logarithm(values: Array) -> Array:
    """Return log(1 + |v|) with the sign of v: some features are differences."""
    logs: Array = np.copysign(np.log1p(np.abs(values)), values)
    return logs


def _sigmoid(x: Array) -> Array:
    value: Array = 0.5 + 0.5 * np.tanh(0.5 * x)  # never overflows
    return value


def _silu(x: Array) -> Array:
    return x * _sigmoid(x)
