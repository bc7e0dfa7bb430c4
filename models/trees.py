"""A sum of regression trees as plain numbers: what scikit-learn's gradient boosting has learnt.

scikit-learn keeps trees in objects, for which a pickle or `skops` would be needed. The latter runs
no code, but trusts the numbers: a child that points outside its tree is a read outside its memory.
Here each is checked when it is read. For one row at a time this is also quicker by far.
"""

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from models.arrays import array_state, read_array
from models.state import State, check_version, read_number

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingRegressor

COLUMNS = {
    "feature": "<i4",
    "threshold": "<f8",
    "missing_left": "|u1",
    "left": "<i4",
    "right": "<i4",
    "value": "<f8",
}
"""What is kept of each node, by type. A leaf has no children, which is 0."""


class Trees:
    """Baseline plus the leaves that a row of features falls into.

    All trees' nodes are in one table, each tree's root first and children after their parents, so
    every walk ends. A feature that is not a number goes where `missing_left` says.

    Parameters
    ----------
    features
        Length of a row.
    baseline
        Sum without any tree.
    roots
        Row of the table where each tree begins, rising from 0.
    nodes
        The table: the columns of `COLUMNS`.

    Raises
    ------
    ValueError
        If the table is none.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> rows, counts = np.arange(100.0).reshape(50, 2), np.repeat([1.0, 3.0], 25)
    >>> model = HistGradientBoostingRegressor(max_iter=50).fit(rows, counts)
    >>> round(Trees.of(model).total([80.0, 81.0]), 3), model.predict([[80.0, 81.0]]).round(3).item()
    (2.995, 2.995)
    """

    def __init__(
        self, features: int, baseline: float, roots: NDArray[Any], nodes: dict[str, NDArray[Any]]
    ) -> None:
        _check(features, roots, nodes)
        self._features, self._baseline = features, baseline
        self._arrays = {"roots": roots, **nodes}
        # As lists, which Python walks quicker than arrays.
        self._roots: list[int] = roots.tolist()
        self._feature, self._threshold, self._missing_left, self._left, self._right, self._value = (
            nodes[name].tolist() for name in COLUMNS
        )

    @classmethod
    def of(cls, model: "HistGradientBoostingRegressor") -> Self:
        """Return the trees of a fitted model, without categories.

        Their total is its prediction for squared, absolute and quantile loss, and the logarithm of
        it for Poisson and gamma loss.

        Raises
        ------
        ValueError
            If it was fitted with categorical features.
        """
        tables = [predictor.nodes for (predictor,) in model._predictors]
        roots = np.cumsum([0, *(len(table) for table in tables[:-1])])
        table = np.concatenate(tables)
        if table["is_categorical"].any():
            raise ValueError("trees with categorical features can't be kept")
        first = np.repeat(roots, [len(one) for one in tables])
        inner = table["is_leaf"] == 0
        nodes = {
            "feature": np.where(inner, table["feature_idx"], 0),
            "threshold": table["num_threshold"],
            "missing_left": table["missing_go_to_left"],
            "left": np.where(inner, table["left"] + first, 0),
            "right": np.where(inner, table["right"] + first, 0),
            "value": table["value"],
        }
        typed = {name: nodes[name].astype(kind) for name, kind in COLUMNS.items()}
        baseline = float(model._baseline_prediction.item())
        return cls(int(model.n_features_in_), baseline, roots.astype("<i4"), typed)

    def total(self, row: Sequence[float]) -> float:
        """Return the sum for one row of features."""
        feature, threshold, left, right = self._feature, self._threshold, self._left, self._right
        total = self._baseline
        for node in self._roots:
            while left[node]:
                value = row[feature[node]]
                goes_left = self._missing_left[node] if isnan(value) else value <= threshold[node]
                node = left[node] if goes_left else right[node]
            total += self._value[node]
        return total

    def to_state(self) -> State:
        """Return them as plain values."""
        arrays = {name: array_state(values) for name, values in self._arrays.items()}
        return {
            "version": 1,
            "features": self._features,
            "baseline": self._baseline,
            **arrays,
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the trees that `to_state` described.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        check_version(state, 1)
        roots = read_array(state, "roots", "<i4", (None,))
        nodes = {name: read_array(state, name, kind, (None,)) for name, kind in COLUMNS.items()}
        features = int(read_number(state, "features", low=1.0))
        return cls(features, read_number(state, "baseline"), roots, nodes)


def _check(features: int, roots: NDArray[Any], nodes: dict[str, NDArray[Any]]) -> None:
    """Make sure that every walk stays in its tree, ends, and finds its features."""
    size = len(nodes["value"])
    if any(len(column) != size for column in nodes.values()):
        raise ValueError("the columns of the trees should be of one length")
    if len(roots) and (roots[0] != 0 or (np.diff(roots) < 1).any() or roots[-1] >= size):
        raise ValueError("roots should rise from 0 and lie in the table")
    if not len(roots) and size:
        raise ValueError("nodes should belong to a tree")
    number = np.arange(size)
    ends = np.append(roots, size)[np.searchsorted(roots, number, side="right")]
    left, right, feature = nodes["left"], nodes["right"], nodes["feature"]
    leaf = (left == 0) & (right == 0)
    for child in (left, right):
        if not (leaf | ((child > number) & (child < ends))).all():
            raise ValueError("children should come after their parents, in the same tree")
    if not ((feature >= 0) & (feature < features)).all():
        raise ValueError(f"features should be numbered from 0 to {features - 1}")
    if not np.isfinite(nodes["value"]).all():
        raise ValueError("leaves should be finite numbers")
