import json
import subprocess
import sys
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor

from models.boosted import Boosted, Trees, _trees
from models.checks import TYPICAL
from models.trained_checks import fitted

NAMES = ("a", "b", "c")


def regressor() -> tuple[HistGradientBoostingRegressor, Trees]:
    draw = np.random.default_rng(1)
    table = draw.exponential(10.0, (3_000, 3)).round(1)
    counts = draw.poisson(0.3 * table[:, 0] + (table[:, 1] > 9.0) * table[:, 2])
    found = HistGradientBoostingRegressor(
        loss="poisson", max_iter=40, max_leaf_nodes=16, early_stopping=False, random_state=1
    ).fit(table, counts)
    return found, Trees(NAMES, _trees(found))


REGRESSOR, TREES = regressor()
EDGES = sorted({edge for _, edges, _ in TREES._forest._searches for edge in edges})
values = st.floats(-1e9, 1e9) | st.sampled_from(EDGES) | st.floats(0.0, 30.0)


@settings(max_examples=300, deadline=None)
@given(st.lists(values, min_size=3, max_size=3))
def test_its_sum_is_scikit_learns_to_the_last_bit(row: list[float]) -> None:
    expected = REGRESSOR.predict(np.array([row]))[0]
    assert float(np.exp(TREES.log_mean(row))) == pytest.approx(expected, rel=4e-16)
    assert TREES.log_mean(row) == REGRESSOR._raw_predict(np.array([row])).item()


def trees(model: Boosted) -> int:
    return len(cast(Any, model.to_state())["fitted"]["trees"])


def test_trees_stop_where_the_newest_part_of_the_log_says_so() -> None:
    # What the older part has to teach holds no longer in the newest: more trees make it worse.
    rising = [{**TYPICAL, "age_s": float(k % 50)} for k in range(5_000)]
    counts = [k % 50 if k < 4_000 else 49 - k % 50 for k in range(5_000)]
    turned, steady = Boosted(15.0), Boosted(15.0)
    turned.fit(rising, counts, seed=1)
    steady.fit(rising, [k % 50 for k in range(5_000)], seed=1)
    assert trees(turned) == 2  # what the sum begins with, and one
    assert trees(steady) > 50


def test_a_fitted_model_is_read_and_run_without_scikit_learn() -> None:
    code = (
        "import json, sys; from models import MODELS; from models.checks import TYPICAL;"
        "model = MODELS['boosted'].from_state(json.load(sys.stdin)); model.predict_one(TYPICAL);"
        "assert 'sklearn' not in sys.modules"
    )
    state = json.dumps(fitted(Boosted).to_state())
    subprocess.run([sys.executable, "-c", code], input=state, text=True, check=True, timeout=60)
