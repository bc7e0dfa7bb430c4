import random
from collections.abc import Sequence
from math import log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from forecasting.forecaster import Forecaster
from models.base import Features
from models.counts import Counts


class Constant:
    """Predicts `mean` whatever is asked, and keeps what it is told."""

    def __init__(self, mean: float) -> None:
        self.mean = mean
        self.learnt: list[tuple[Features, int]] = []

    def predict_one(self, x: Features) -> Counts:
        return Counts(self.mean, shape=2.0)

    def learn_one(self, x: Features, count: int) -> None:
        self.learnt.append((x, count))


class MeanCount:
    """Predicts the mean of the counts learnt so far, scaled by a feature, so both show."""

    def __init__(self) -> None:
        self.total = self.labels = 0

    def predict_one(self, x: Features) -> Counts:
        return Counts((self.total + 1.0) / (self.labels + 1.0) * (1.0 + x["count_hl_60s"]))

    def learn_one(self, x: Features, count: int) -> None:
        self.total += count
        self.labels += 1


def request(at_s: float, *chain: int) -> Arrival:
    return Arrival(at_s, chain, block_tokens=512, input_tokens=512 * len(chain))


def traffic(seed: int, requests: int = 400) -> list[Arrival]:
    """Arrivals of 20 prefixes of 2 blocks, some of which go on, one in ten out of order."""
    rng = random.Random(seed)
    at_s, arrivals = 0.0, []
    for number in range(requests):
        at_s += rng.expovariate(4.0)
        prefix = rng.randrange(20)
        tail = rng.choice([(), (1000 + prefix,), (1000 + prefix, 10_000 + number)])
        late_s = rng.choice([0.0] * 9 + [1.0])
        arrivals.append(request(max(at_s - late_s, 0.0), prefix, 100 + prefix, *tail))
    return arrivals


def run(arrivals: Sequence[Arrival], ask: bool = True) -> tuple[Forecaster, list[list[Forecast]]]:
    forecaster = Forecaster({1.0: MeanCount(), 15.0: MeanCount()}, boundary_tokens=1024)
    told = []
    for arrival in arrivals:
        forecaster.observe(arrival)
        if ask:
            told.append(forecaster.forecast_path(arrival))
            forecaster.hottest(arrival.at_s, 3)
            forecaster.forecast(arrival.chain[0], arrival.at_s + 9.0)
    return forecaster, told


def test_a_path_is_told_at_the_boundary_where_most_is_saved_and_at_the_deepest_shared() -> None:
    forecaster = Forecaster({}, boundary_tokens=512)
    for branch in range(10):  # 10 share 4 blocks
        forecaster.observe(request(0.0, 1, 2, 3, 4, 50 + branch))
    for _ in range(2):  # and 2 of them 5
        arrival = request(0.0, 1, 2, 3, 4, 50, 60)
        forecaster.observe(arrival)
    told = forecaster.forecast_path(arrival)
    assert [(one.prefix.key, one.prefix.blocks, one.seen) for one in told] == [
        (1, 1, 12),
        (4, 4, 12),
        (60, 6, 3),
    ]
    assert [one.prefix.tokens for one in told] == [512, 2048, 3072]


def test_a_first_arrival_is_told_of_its_boundary_prefix_only() -> None:
    forecaster = Forecaster({5.0: Constant(2.0)}, boundary_tokens=1024)
    arrival = request(3.0, 1, 2, 3, 4)
    forecaster.observe(arrival)
    (told,) = forecaster.forecast_path(arrival)
    assert (told.prefix.key, told.seen, told.at_s, told.mean(5.0)) == (2, 1, 3.0, 2.0)


def test_prompts_shorter_than_the_boundary_or_unknown_are_told_nothing() -> None:
    forecaster = Forecaster({}, boundary_tokens=1024)
    for arrival in [request(0.0), request(0.0, 1)]:
        forecaster.observe(arrival)
        assert forecaster.forecast_path(arrival) == []
    assert forecaster.forecast_path(request(0.0, 7, 8, 9)) == []
    assert forecaster.tallies()["arrivals_without_prefix"] == 2


def test_any_known_block_names_the_prefix_that_it_is_part_of() -> None:
    forecaster = Forecaster({}, boundary_tokens=1024)
    forecaster.observe(request(0.0, 1, 2, 3, 4))
    keys = []
    for block in (1, 2, 3, 4):
        told = forecaster.forecast(block, now_s=1.0)
        assert told is not None
        keys.append(told.prefix.key)
    assert keys == [2, 2, 4, 4]
    assert forecaster.forecast(5, now_s=1.0) is None


def test_models_learn_each_label_once_its_horizon_has_passed_and_not_before() -> None:
    short, long = Constant(0.0), Constant(0.0)
    forecaster = Forecaster({5.0: long, 1.0: short}, boundary_tokens=512)
    for at_s in (0.0, 0.5, 3.0):
        forecaster.observe(request(at_s, 1))
    assert [count for _, count in short.learnt] == [1, 0]
    assert long.learnt == []
    forecaster.advance(8.0)
    assert [count for _, count in long.learnt] == [2, 1]
    forecaster.advance(8.1)
    assert [count for _, count in long.learnt] == [2, 1, 0]
    assert [x["arrivals"] for x, _ in long.learnt] == [1.0, 2.0, 3.0]


def test_a_forecaster_that_does_not_learn_leaves_its_models_alone() -> None:
    model = Constant(1.0)
    forecaster = Forecaster({1.0: model}, boundary_tokens=512, learn=False)
    for at_s in range(10):
        forecaster.observe(request(float(at_s), 1))
    assert model.learnt == []
    assert forecaster.hottest(9.0, 1)[0].mean(1.0) == 1.0


def test_an_arrival_older_than_the_time_told_cannot_change_a_label_already_given() -> None:
    model = Constant(0.0)
    forecaster = Forecaster({1.0: model}, boundary_tokens=512)
    forecaster.observe(request(0.0, 1))
    forecaster.advance(10.0)
    late = request(0.5, 1)
    forecaster.observe(late)
    assert [count for _, count in model.learnt] == [0]
    assert forecaster.forecast_path(late)[0].at_s == 10.0
    assert forecaster.tallies()["arrivals_late"] == 1


def test_a_longer_horizon_never_has_a_smaller_mean() -> None:
    models = {60.0: Constant(1.0), 5.0: Constant(3.0), 15.0: Constant(4.0), 1.0: Constant(0.5)}
    forecaster = Forecaster(models, boundary_tokens=512)
    forecaster.observe(request(0.0, 1))
    (told,) = forecaster.hottest(0.0, 1)
    assert list(told.counts) == [1.0, 5.0, 15.0, 60.0]
    assert [count.mean for count in told.counts.values()] == [0.5, 3.0, 4.0, 4.0]
    assert told.counts[60.0].shape == 2.0


def test_the_hottest_prefixes_come_first() -> None:
    forecaster = Forecaster({}, boundary_tokens=512)
    for key in (1, 2, 2, 3, 2, 3):
        forecaster.observe(request(0.0, key))
    told = forecaster.hottest(10.0, top=2)
    assert [(one.prefix.key, one.seen, one.at_s) for one in told] == [(2, 3, 10.0), (3, 2, 10.0)]


def test_a_forecast_between_arrivals_takes_the_silence_into_account() -> None:
    # Of 3 within 1 s, shape 2: after 0.5 s without an arrival 1.5 were expected, and within the
    # next second are 0.5 s at 3 a second and then 3 ln(1.5); over the root of 1 + 1.5 / 2. Or, at
    # an even rate, 3 over 1 + 1.5 / 2.
    forecaster = Forecaster({1.0: Constant(3.0)}, boundary_tokens=512)
    forecaster.observe(request(0.0, 1))
    now, later = forecaster.forecast(1, now_s=0.0), forecaster.forecast(1, now_s=0.5)
    assert now is not None
    assert later is not None
    assert now.mean(1.0) == 3.0
    coming = (1.5 + 3.0 * log(1.5)) / sqrt(1.75)
    assert later.mean(1.0) == pytest.approx(0.7 * coming + 0.3 * 3.0 / 1.75)
    assert later.returns == {}


def test_without_models_forecasts_have_no_counts() -> None:
    forecaster = Forecaster({}, boundary_tokens=512)
    forecaster.observe(request(0.0, 1))
    assert [dict(one.counts) for one in forecaster.hottest(0.0, 5)] == [{}]


def test_a_time_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="a time must be finite"):
        Forecaster({}).advance(float("nan"))


@given(seed=st.integers(0, 2**16))
def test_the_same_arrivals_give_the_same_forecasts(seed: int) -> None:
    arrivals = traffic(seed, requests=60)
    assert run(arrivals)[1] == run(arrivals)[1]


@pytest.mark.parametrize("seed", range(5))
def test_predicting_changes_nothing(seed: int) -> None:
    arrivals = traffic(seed)
    asked, _ = run(arrivals)
    silent, _ = run(arrivals, ask=False)
    now_s = arrivals[-1].at_s + 2.0
    assert asked.hottest(now_s, 50) == silent.hottest(now_s, 50)
    assert asked.hottest(now_s, 50) == asked.hottest(now_s, 50)
    assert asked.tallies() == silent.tallies()


@pytest.mark.parametrize("seed", range(3))
def test_forecasts_of_a_path_are_distinct_shallow_to_deep_and_at_most_three(seed: int) -> None:
    for told in run(traffic(seed))[1]:
        depths = [one.prefix.blocks for one in told]
        assert 1 <= len(depths) <= 3
        assert depths == sorted(set(depths))
        assert depths[0] == 2
        assert all(one.counts[1.0].mean <= one.counts[15.0].mean for one in told)


def test_learning_makes_forecasts_follow_what_came() -> None:
    busy = [request(0.1 * step, 1) for step in range(600)]
    forecaster = Forecaster({1.0: MeanCount()}, boundary_tokens=512)
    forecaster.observe(busy[0])
    (before,) = forecaster.forecast_path(busy[0])
    for arrival in busy[1:]:
        forecaster.observe(arrival)
    (after,) = forecaster.forecast_path(busy[-1])
    assert after.mean(1.0) > 10.0 * before.mean(1.0)


def test_the_tallies_say_what_was_not_taken() -> None:
    forecaster = Forecaster({1.0: Constant(0.0)}, boundary_tokens=1024, max_blocks=3)
    arrivals = [
        request(1.0, 1, 2),
        request(0.0, 3, 4),
        request(1.0, 5, 5),
        request(1.0, 6, 7, 8, 9),
    ]
    for arrival in arrivals:
        forecaster.observe(arrival)
    assert forecaster.tallies() == {
        "arrivals": 4,
        "arrivals_late": 1,
        "arrivals_without_prefix": 1,
        "chains_broken": 1,
        "chains_cut": 1,
        "blocks": 3,
        "nodes_pruned": 2,
        "schedules": 0,
        "schedules_dropped": 0,
        "samples_waiting": 3,
        "samples_dropped": 0,
    }
