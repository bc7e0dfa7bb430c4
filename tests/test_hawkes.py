import random

import pytest

from models.base import HALF_LIVES_S, Features, decayed_count
from models.hawkes import Hawkes


def features(**counts: float) -> Features:
    """Return decayed counts of 1, but for those given as hl_15s=3.0."""
    found = {decayed_count(half_life_s): 1.0 for half_life_s in HALF_LIVES_S}
    return {**found, **{f"count_{name}": value for name, value in counts.items()}}


def hawkes_arrivals(
    chance: random.Random, background: float, offspring: float, half_life_s: float, end_s: float
) -> list[float]:
    """Return a Hawkes process, simulated as immigrants and their offspring (Hawkes and Oakes)."""
    rate = 0.6931471805599453 / half_life_s
    waiting, found = [], []
    at_s = chance.expovariate(background)
    while at_s < end_s:
        waiting.append(at_s)
        at_s += chance.expovariate(background)
    while waiting:
        at_s = waiting.pop()
        found.append(at_s)
        left = chance.random()
        children = 0
        probability = pow(2.718281828459045, -offspring)
        while left > probability:
            left -= probability
            children += 1
            probability *= offspring / children
        waiting += [at_s + chance.expovariate(rate) for _ in range(children)]
    return sorted(one for one in found if one < end_s)


def test_the_mean_is_a_sum_over_kernels() -> None:
    # Prior: 0.005 a minute, and 0.2 offspring over six kernels, of which the share
    # 1 - 2^(-15 / half-life) falls within 15 s.
    shares = sum(1.0 - 2.0 ** (-15.0 / half_life_s) for half_life_s in HALF_LIVES_S)
    expected = 0.005 * 15.0 / 60.0 + 0.2 / 6.0 * shares
    assert Hawkes(15.0).mean(features()) == pytest.approx(expected)


def test_it_finds_the_kernel_that_matters() -> None:
    # Half as many follow as the 15 s count says; the other counts vary on their own.
    chance = random.Random(1)
    model = Hawkes(15.0)
    for _ in range(20_000):
        x = {name: 1.0 + 9.0 * chance.random() for name in features()}
        mean = 0.5 * x["count_hl_15s"]
        model.learn_one(x, sum(chance.random() < mean / 20.0 for _ in range(20)))
    base = features(hl_1s=1.0)
    more = model.mean(features(hl_15s=5.0)) - model.mean(base)
    other = model.mean(features(hl_300s=5.0)) - model.mean(base)
    assert more == pytest.approx(2.0, rel=0.25)
    assert other < 0.25


def test_it_comes_near_the_truth_on_a_hawkes_process() -> None:
    # Branching ratio 0.6, kernel half-life 5 s: after an arrival with a decayed count of C, the
    # direct offspring within 15 s are 0.6 (1 - 2^-3) C, and theirs in turn come on top.
    arrivals_s = hawkes_arrivals(random.Random(2), 0.02, 0.6, 5.0, 60_000.0)
    model = Hawkes(15.0)
    counts = dict.fromkeys(HALF_LIVES_S, 0.0)
    forecast = came = 0.0
    for k in range(1, len(arrivals_s) - 40):
        gap_s = arrivals_s[k] - arrivals_s[k - 1]
        for half_life_s in HALF_LIVES_S:
            counts[half_life_s] = counts[half_life_s] * 2.0 ** (-gap_s / half_life_s) + 1.0
        x = {decayed_count(half_life_s): value for half_life_s, value in counts.items()}
        followed = sum(one <= arrivals_s[k] + 15.0 for one in arrivals_s[k + 1 : k + 40])
        if k > 500:
            forecast += model.mean(x)
            came += followed
        model.learn_one(x, followed)
    assert forecast == pytest.approx(came, rel=0.05)
    lone = model.mean(features())
    crowd = model.mean(features(hl_1s=2.0, hl_5s=4.0, hl_15s=6.0))
    assert crowd > 2.0 * lone


def test_coefficients_stay_above_zero_so_that_they_can_come_back() -> None:
    model = Hawkes(15.0)
    for _ in range(5000):
        model.learn_one(features(), 0)
    nothing = model.mean(features())
    for _ in range(5000):
        model.learn_one(features(), 4)
    assert nothing < 0.001
    assert model.mean(features()) == pytest.approx(4.0, rel=0.05)


def test_a_state_with_a_negative_sum_is_refused() -> None:
    state = {**Hawkes(15.0).to_state(), "came": [-1.0] * 7}
    with pytest.raises(ValueError, match=r"came\[0\] should lie in"):
        Hawkes.from_state(state)
