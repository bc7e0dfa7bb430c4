"""The contest in a running service: what is scored, what it may cost, and what it may not touch."""

from collections.abc import Iterator
from math import log

import pytest

from btb.contest import stand
from btb.service.shadow import MAX_PENDING, Shadow
from btb.service.stage import LiveForecaster, Stage
from forecasting.arrival import Arrival
from models.base import Features
from models.counts import Counts
from models.ewma import Ewma

CHAIN = (1, 2, 3, 4)


class Fixed(Ewma):
    """Expects the same, whatever comes."""

    def __init__(self, horizon_s: float, mean: float = 1.0) -> None:
        super().__init__(horizon_s)
        self.says = mean
        self.learnt: list[int] = []

    def predict_one(self, x: Features) -> Counts:
        return Counts(self.says)

    def learn_one(self, x: Features, count: int) -> None:
        self.learnt.append(count)


class Broken(Fixed):
    """Fails once it is to learn."""

    def learn_one(self, x: Features, count: int) -> None:
        raise ZeroDivisionError("a bug in somebody's model")


def arrival(at_s: float) -> Arrival:
    return Arrival(at_s, CHAIN, 512, 2048)


def shadow_of(
    champion: Fixed, challenger: Fixed, share: float = 0.2, clock: Iterator[float] | None = None
) -> Shadow:
    ticks = iter(lambda: 0.0, None) if clock is None else clock
    return Shadow(
        {5.0: champion},
        {5.0: challenger},
        window_s=600.0,
        share=share,
        clock=lambda: next(ticks),
    )


def stage_of(champion: Fixed, challenger: Fixed) -> tuple[Stage, LiveForecaster]:
    stage = Stage({5.0: champion})
    stage.put({5.0: champion}, shadow_of(champion, challenger))
    return stage, LiveForecaster(stage, boundary_tokens=2048)


def test_both_are_scored_on_the_same_samples_as_worked_by_hand() -> None:
    champion, challenger = Fixed(5.0, 1.0), Fixed(5.0, 2.0)
    stage, live = stage_of(champion, challenger)
    for at_s in (0.0, 1.0, 3.0, 700.0, 800.0):
        live.observe(arrival(at_s))
    # Within 5 s came 2 after the first, 1 after the second, 0 after the third and the fourth.
    assert stage.shadow is not None
    contest = stage.shadow.contests[5.0]
    labels, was, new = contest.sums().sum(axis=0)
    two = 2.0 * (2.0 * log(2.0) - 1.0)  # the deviance of 1 where 2 came
    one = 2.0 * (log(0.5) + 1.0)  # of 2 where 1 came
    assert labels == 4
    assert was == pytest.approx(two + 0.0 + 2.0 + 2.0)
    assert new == pytest.approx(0.0 + one + 4.0 + 4.0)
    assert champion.learnt == challenger.learnt == [2, 1, 0, 0]
    assert contest.sums([0]).sum(axis=0)[0] == 3  # by window of 600 s
    assert contest.sums([1]).sum(axis=0)[0] == 1


def test_forecasts_are_those_of_the_champion_whoever_is_in_its_shadow() -> None:
    stage, live = stage_of(Fixed(5.0, 1.0), Fixed(5.0, 1e6))
    for at_s in (0.0, 1.0, 10.0):
        live.observe(arrival(at_s))
        told = live.forecast(CHAIN[-1], at_s)
        assert told is not None
        assert told.mean(5.0) == 1.0
    assert stage.shadow is not None
    assert len(stage.shadow.contests[5.0].sums()) == 1


def test_forecasts_are_made_before_what_came_is_known() -> None:
    """The state at the time of the sample counts, not that when its label comes."""

    class Copying(Fixed):
        def learn_one(self, x: Features, count: int) -> None:
            self.says = count + 1e-9

    stage, live = stage_of(Fixed(5.0, 3.0), Copying(5.0, 3.0))
    for at_s in (0.0, 0.1, 0.2, 0.3, 100.0):
        live.observe(arrival(at_s))
    # All four labels come at once, when the four forecasts of 3 have been made.
    assert stage.shadow is not None
    _, was, new = stage.shadow.contests[5.0].sums().sum(axis=0)
    assert was == new


def test_a_challenger_that_fails_is_dismissed_and_nothing_else() -> None:
    champion = Fixed(5.0)
    stage, live = stage_of(champion, Broken(5.0))
    for at_s in (0.0, 1.0, 10.0, 20.0):
        live.observe(arrival(at_s))
    assert stage.shadow is None
    assert stage.failure == "ZeroDivisionError: a bug in somebody's model"
    assert champion.learnt == [1, 0, 0]


def test_samples_are_taken_more_rarely_where_they_take_too_long_and_more_often_again() -> None:
    now_s = 0.0

    class Slow(Fixed):
        def predict_one(self, x: Features) -> Counts:
            nonlocal now_s
            now_s += cost_s
            return super().predict_one(x)

    def clock() -> Iterator[float]:
        while True:
            yield now_s

    challenger = Slow(5.0)
    shadow = shadow_of(Fixed(5.0), challenger, share=0.1, clock=clock())
    stage = Stage({5.0: Fixed(5.0)})
    stage.put(stage.champion, shadow)
    live = LiveForecaster(stage, boundary_tokens=2048)
    cost_s = 0.05
    for number in range(2_000):  # 100 a second: each would take five seconds a second
        now_s = max(now_s, number / 100.0)
        live.observe(arrival(number / 100.0))
    assert shadow.stride >= 64
    cost_s = 0.0
    started_s = now_s
    for number in range(4_000):
        now_s = started_s + number / 100.0
        live.observe(arrival(now_s))
    assert shadow.stride == 1


def test_no_more_forecasts_wait_than_have_room_and_orphans_go() -> None:
    stage, live = stage_of(Fixed(5.0), Fixed(5.0))
    shadow = stage.shadow
    assert shadow is not None
    live.observe(arrival(0.0))
    sample = live._newest
    assert sample is not None
    made = type(sample)
    samples = [made(sample.node, 1.0, dict(sample.x), 1) for _ in range(MAX_PENDING + 50)]
    for one in samples:
        shadow.foresee(one)
    assert len(shadow._pending[5.0]) == MAX_PENDING
    # None of their labels ever comes; 5 s later they make room for others.
    late = made(sample.node, 10.0, dict(sample.x), 1)
    shadow.foresee(late)
    assert len(shadow._pending[5.0]) == 1
    shadow.learn(5.0, samples[0].x, 7)
    assert stand(shadow.contests[5.0].sums()) is None
    shadow.learn(5.0, late.x, 7)
    assert len(shadow.contests[5.0].sums()) == 1
