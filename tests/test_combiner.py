"""The combiner and the table of burst sizes, beyond what every model is checked for."""

from math import exp
from random import Random
from typing import Any

import pytest

from models.burst_size import PRIOR_CLAIM, PRIOR_SCALE, BurstSize
from models.checks import TYPICAL, varied
from models.combiner import KINDS, PRIOR, RATE, TRAINED, Combined
from models.ewma import Ewma


def size_of(last: float, so_far: float, gap_s: float = 0.1) -> dict[str, float]:
    return {**TYPICAL, "last_burst_size": last, "burst_size": so_far, "gap_last_s": gap_s}


def test_a_burst_is_expected_to_be_about_as_large_as_the_last_one() -> None:
    model, rng = BurstSize(60.0), Random(1)
    for _ in range(400):
        size = rng.choice([20, 40, 80])
        for so_far in range(1, size + 1):
            model.learn_one(size_of(float(size), float(so_far)), size - so_far)
    left = [model.predict_one(size_of(60.0, so_far)).mean for so_far in (1.0, 10.0, 60.0)]
    assert left == pytest.approx([58.0, 49.0, 0.0], abs=4.0)


def test_where_there_was_no_burst_before_its_own_size_is_what_counts() -> None:
    model = BurstSize(15.0)
    for _ in range(200):
        model.learn_one(size_of(0.0, 3.0), 6)
    assert model.predict_one(size_of(0.0, 4.0)).mean == pytest.approx(8.0, rel=0.05)
    untouched = model.predict_one(size_of(5.0, 3.0)).mean
    assert untouched == pytest.approx(5.0 * PRIOR_SCALE)


def test_the_first_label_moves_a_cell_as_far_as_its_prior_lets_it() -> None:
    model = BurstSize(15.0)
    model.learn_one(size_of(10.0, 1.0), 7)
    keep = 1.0 - 10.0 * PRIOR_SCALE / 500.0
    share = (keep * PRIOR_SCALE * PRIOR_CLAIM + 7.0) / (keep * PRIOR_CLAIM + 10.0)
    assert model.predict_one(size_of(10.0, 1.0)).mean == pytest.approx(10.0 * share)


def test_a_fresh_combination_is_the_mean_by_the_weights_to_begin_with() -> None:
    model = Combined(15.0)
    experts = [
        Ewma(15.0, 5.0),
        Ewma(15.0, 60.0),
        *(make(15.0) for name, make in list(KINDS.items())[2:] if name != TRAINED),
    ]
    means = [expert.predict_one(TYPICAL).mean for expert in experts]
    online = [PRIOR[name] for name in KINDS if name != TRAINED]
    want = sum(weight * mean for weight, mean in zip(online, means, strict=True)) / sum(online)
    assert model.predict_one(TYPICAL).mean == pytest.approx(want)
    assert list(PRIOR) == list(KINDS)


def test_weight_goes_to_whoever_is_right_and_comes_back_when_that_changes() -> None:
    model = Combined(15.0)
    for k in range(3000):  # only the table knows how the rest depends on the last burst
        last = (10.0, 20.0, 40.0)[k % 3]
        for so_far in (0.3 * last, 0.9 * last):
            model.learn_one(size_of(last, so_far), round(last - so_far))
    best = max(model.weights, key=model.weights.__getitem__)
    assert best in ("recurrence", "river")
    assert model.weights["ewma_5s"] < 0.01
    assert sum(model.weights.values()) == pytest.approx(1.0)
    for k in range(4000):  # now it is the decayed count alone that tells
        count = float(k % 7)
        x = {**size_of(10.0, 5.0), "count_hl_5s": count}
        model.learn_one(x, round(2.0 * count))
    recovered = sum(model.weights[name] for name in ("ewma_5s", "river", "hawkes"))
    assert recovered > 0.9


def test_at_one_label_no_expert_loses_more_than_the_largest_loss_allows() -> None:
    model = Combined(15.0)
    model.learn_one(TYPICAL, 100_000)
    total = sum(PRIOR[name] for name in model.weights)
    for name, weight in model.weights.items():
        assert weight > PRIOR[name] / total * exp(-11.0 * RATE)


def test_trees_join_once_there_is_a_log_and_lose_their_weight_when_it_is_out_of_date() -> None:
    log = [({**TYPICAL, "depth_tokens": 1024.0 * (1 + k % 2)}, 4 * (k % 2)) for k in range(2000)]
    model = Combined(15.0)
    for x, count in log:
        model.learn_one(x, count)
    assert TRAINED not in model.weights
    model.fit([x for x, _ in log], [count for _, count in log], seed=1)
    for x, count in log[:500]:
        model.learn_one(x, count)
    assert model.weights[TRAINED] > 0.45
    assert [round(model.predict_one(x).mean, 1) for x, _ in log[:2]] == pytest.approx([0, 4], abs=1)
    restored = Combined.from_state(model.to_state())
    assert restored.predict_one(TYPICAL) == model.predict_one(TYPICAL)
    for x, count in log * 2:
        model.learn_one(x, 4 - count)
    assert model.weights[TRAINED] < 0.2


def test_a_fit_that_fails_leaves_the_combination_as_it_was() -> None:
    model = Combined(15.0)
    with pytest.raises(ValueError, match="fitting takes"):
        model.fit([TYPICAL], [1], seed=1)
    assert TRAINED not in model.weights


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": dict.fromkeys(KINDS, 0.5)}, "add up to 1"),
        ({"weights": {"ewma_5s": 1.0}}, "ewma_60s"),
        ({"usual": -1.0}, "usual"),
        ({"experts": {}}, "ewma_5s"),
        ({"horizon_s": 5.0}, "another time"),
    ],
)
def test_a_state_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    model = Combined(15.0)
    for x, count in varied(10):
        model.learn_one(x, count)
    with pytest.raises(ValueError, match=message):
        Combined.from_state({**model.to_state(), **changes})
