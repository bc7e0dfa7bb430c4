import random

import pytest

from models.ewma import PRIOR_SCALE, Ewma

HL15 = "count_hl_15s"


def test_a_fresh_model_takes_a_tenth_of_the_kernel_estimate() -> None:
    # One arrival, half-life 15 s: the rate is ln 2 / 15 a second, so ln 2 in 15 s.
    mean = Ewma(15.0, half_life_s=15.0).predict_one({HL15: 1.0}).mean
    assert mean == pytest.approx(PRIOR_SCALE * 0.693147, rel=1e-5)


def test_the_forecast_is_proportional_to_the_decayed_count() -> None:
    model = Ewma(15.0, half_life_s=15.0)
    one, four = (model.predict_one({HL15: count}).mean for count in (1.0, 4.0))
    assert four == pytest.approx(4.0 * one)


def test_the_scale_is_what_came_over_what_was_claimed() -> None:
    # Claims of ln 2 each, of which a half came, every second time.
    model = Ewma(15.0, half_life_s=15.0)
    for k in range(4000):
        model.learn_one({HL15: 1.0}, k % 2)
    assert model.predict_one({HL15: 1.0}).mean == pytest.approx(0.5, rel=0.01)


def test_a_lone_arrival_is_not_taken_for_a_rate() -> None:
    # Prefixes that come once: the raw kernel estimate would claim ln 2 more each.
    model = Ewma(15.0, half_life_s=15.0)
    for _ in range(1000):
        model.learn_one({HL15: 1.0}, 0)
    assert model.predict_one({HL15: 1.0}).mean < 0.001


def test_it_follows_a_change_of_scale() -> None:
    model = Ewma(15.0, half_life_s=15.0)
    for _ in range(20_000):
        model.learn_one({HL15: 1.0}, 1)
    for _ in range(6_000):
        model.learn_one({HL15: 1.0}, 3)
    assert model.predict_one({HL15: 1.0}).mean == pytest.approx(3.0, rel=0.1)


def test_for_a_poisson_process_it_comes_to_the_true_rate() -> None:
    # 2 requests a second on one prefix: 30 more in 15 s, whatever the count says just now.
    chance = random.Random(5)
    model, count, arrivals_s = Ewma(15.0, half_life_s=60.0), 0.0, [0.0]
    while arrivals_s[-1] < 3000.0:
        arrivals_s.append(arrivals_s[-1] + chance.expovariate(2.0))
    for k in range(1, len(arrivals_s) - 60):
        count = count * 2.0 ** ((arrivals_s[k - 1] - arrivals_s[k]) / 60.0) + 1.0
        followed = sum(one <= arrivals_s[k] + 15.0 for one in arrivals_s[k + 1 : k + 60])
        model.learn_one({"count_hl_60s": count}, followed)
    assert model.predict_one({"count_hl_60s": 2.0 * 60.0 / 0.6931}).mean == pytest.approx(
        30, rel=0.05
    )


@pytest.mark.parametrize("half_life_s", [0.0, -1.0, float("nan")])
def test_a_half_life_must_be_positive(half_life_s: float) -> None:
    with pytest.raises(ValueError, match="half_life_s"):
        Ewma(15.0, half_life_s)


def test_a_state_of_another_version_is_refused() -> None:
    state = {**Ewma(15.0).to_state(), "version": 2}
    with pytest.raises(ValueError, match="version should be 1, got 2"):
        Ewma.from_state(state)
