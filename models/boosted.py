"""Boosted trees, fitted to a log by scikit-learn and walked through without it."""

from collections.abc import Sequence
from math import exp
from typing import Any, Self

import numpy as np
from threadpoolctl import threadpool_limits

from models.base import Features
from models.calibration import Calibration
from models.checks import TYPICAL
from models.counts import Counts
from models.forest import LEAF, MAX_LEAVES, MAX_TREES, Forest, Tree
from models.hawkes import Hawkes
from models.state import (
    Json,
    State,
    check_version,
    read_names,
    read_number,
    read_state,
    read_up_to,
)
from models.training_log import TrainingLog

MOST_TREES = 300
"""Trees that are fitted at most, each for what those before it left over."""

PATIENCE = 20
"""Trees in a row that did not help on the samples held back, before it stops."""

SETTINGS = {
    "loss": "poisson",
    "learning_rate": 0.06,
    "max_leaf_nodes": 16,
    "min_samples_leaf": 200,
    "l2_regularization": 1.0,
}
"""Set on the first half of kv-cache-tester and on generated traffic of seed 1. 200 samples a leaf
instead of 40 took 20 to 30 % off the deviance of `recurring`, where a single burst is hundreds of
samples, and cost nothing elsewhere. Rates of 0.03 and 0.1, 8 and 31 leaves, stronger penalties and
features drawn at random were no better on the whole."""

MAX_LOG = 13.8
"""No forecast is larger than exp(13.8), about a million."""


class Boosted:
    """Poisson regression by gradient-boosted trees, on all features.

    The trees are fitted to a log (`fit`) and then stay as they are; what is learnt online is a
    factor (`models.calibration`) and the spread. Until there are trees it is a Hawkes process.

    Fitting is done twice. First without the newest fifth of the log, which then says how many trees
    to take, and by what factor to multiply them and how far counts scatter: on what they were
    fitted to, trees look better than they are. Then so many trees are fitted to everything.

    Parameters
    ----------
    horizon_s
        Seconds to look ahead.

    Raises
    ------
    ValueError
        If `horizon_s` is not positive.

    Examples
    --------
    Of two kinds of prefixes, told apart by their depth, one gets 4 more arrivals, the other none:

    >>> xs = [{**TYPICAL, "depth_tokens": 1024.0 * (1 + k % 2)} for k in range(2000)]
    >>> model = Boosted(horizon_s=15.0)
    >>> model.fit(xs, [4 * (k % 2) for k in range(2000)], seed=1)
    >>> [round(model.predict_one(x).mean, 1) for x in xs[:2]]
    [0.0, 4.0]

    References
    ----------
    Friedman, J. H. (2001). Greedy function approximation: a gradient boosting machine. Annals of
    Statistics 29(5).
    """

    def __init__(self, horizon_s: float) -> None:
        self._horizon_s = horizon_s
        self._hawkes = Hawkes(horizon_s)
        self._names: tuple[str, ...] = ()
        self._forest: Forest | None = None
        self._calibration = Calibration()

    def fit(self, xs: Sequence[Features], counts: Sequence[int], *, seed: int) -> None:
        """Fit trees to samples in the order of time and what followed each.

        Raises
        ------
        ValueError
            If there are not as many counts as samples, or there is too little to learn from.
        """
        log = TrainingLog.read(xs, counts)
        trial = _fit(log.older, seed, MOST_TREES, stop_by=log.newer)
        trees = max(1, int(np.argmax(trial.validation_score_)))
        early, calibration = Forest(_trees(trial)[: trees + 1]), Calibration()
        for row, count in zip(log.newer.table.tolist(), counts[-len(log.newer.counts) :], strict=True):
            calibration.learn(_mean(early, row), count)
        self._names, self._calibration = log.names, calibration
        self._forest = Forest(_trees(_fit(log, seed, trees)))

    def predict_one(self, x: Features) -> Counts:
        """Return the distribution of the number of arrivals within the horizon."""
        if self._forest is None:
            return self._hawkes.predict_one(x)
        return self._calibration.counts(_mean(self._forest, [x[name] for name in self._names]))

    def learn_one(self, x: Features, count: int) -> None:
        """Take in that `count` arrivals followed within the horizon; no tree changes."""
        if self._forest is None:
            self._hawkes.learn_one(x, count)
            return
        said = _mean(self._forest, [x[name] for name in self._names])
        self._calibration.learn(said, count)

    def to_state(self) -> State:
        """Return all that was learnt as plain JSON values."""
        trees = self._forest.trees if self._forest else ()
        return {
            "version": 1,
            "horizon_s": self._horizon_s,
            "hawkes": self._hawkes.to_state(),
            "features": list(self._names),
            "trees": [
                {"inputs": list(tree.inputs), "numbers": list(tree.numbers)} for tree in trees
            ],
            "calibration": self._calibration.to_state(),
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model that `to_state` described.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        check_version(state, 1)
        model = cls(read_number(state, "horizon_s"))
        model._hawkes = Hawkes.from_state(read_state(state, "hawkes"))
        model._names = read_names(state, "features", tuple(TYPICAL))
        trees = _read_trees(state.get("trees"), len(model._names))
        model._forest = Forest(trees) if trees else None
        model._calibration = Calibration.from_state(read_state(state, "calibration"))
        return model


def _mean(forest: Forest, row: Sequence[float]) -> float:
    return exp(min(forest.sum(row), MAX_LOG))


def _fit(log: TrainingLog, seed: int, trees: int, stop_by: TrainingLog | None = None) -> Any:
    """Return scikit-learn's regressor, fitted to `log`, stopped early by `stop_by` if given."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    regressor = HistGradientBoostingRegressor(
        **SETTINGS,
        max_iter=trees,
        early_stopping=stop_by is not None,
        n_iter_no_change=PATIENCE,
        random_state=seed,
    )
    held_back = {} if stop_by is None else {"X_val": stop_by.table, "y_val": stop_by.counts}
    # Threads that wait for each other spin: on a busy machine two took ten times as long as one.
    with threadpool_limits(limits=1, user_api="openmp"):
        return regressor.fit(log.table, log.counts, **held_back)


def _trees(regressor: Any) -> list[Tree]:
    """Return the trees of a fitted regressor, after a lone leaf with what it starts from."""
    start = Tree((LEAF,), (float(regressor._baseline_prediction.item()),))
    return [start, *(_tree(grown.nodes) for (grown,) in regressor._predictors)]


def _tree(nodes: Any) -> Tree:
    """Return a tree of scikit-learn, a record a node with links to its children, in preorder."""
    inputs: list[int] = []
    numbers: list[float] = []
    waiting = [0]
    while waiting:
        node = nodes[waiting.pop()]
        inputs.append(LEAF if node["is_leaf"] else int(node["feature_idx"]))
        numbers.append(float(node["value"] if node["is_leaf"] else node["num_threshold"]))
        if not node["is_leaf"]:
            waiting += (int(node["right"]), int(node["left"]))
    return Tree(tuple(inputs), tuple(numbers))


def _read_trees(trees: Json, features: int) -> list[Tree]:
    if not isinstance(trees, list) or len(trees) > MAX_TREES:
        raise ValueError(f"trees should be a list of at most {MAX_TREES}, got {trees!r:.60}")
    return [_read_tree(tree, f"trees[{k}]", features) for k, tree in enumerate(trees)]


def _read_tree(tree: Json, where: str, features: int) -> Tree:
    if not isinstance(tree, dict):
        raise ValueError(f"{where} should be an object, got {tree!r:.60}")
    try:
        inputs = read_up_to(tree, "inputs", 2 * MAX_LEAVES - 1)
        numbers = read_up_to(tree, "numbers", 2 * MAX_LEAVES - 1)
        for one in inputs:
            if one not in range(LEAF, features):
                raise ValueError(f"inputs should be whole and below {features}, got {one!r}")
        return Tree(tuple(int(one) for one in inputs), tuple(numbers))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
