from collections.abc import Sequence
from math import log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btb.contest import FEWEST_BLOCKS, Contest, Standing, Verdict, decide


def contest(champion: Sequence[float], challenger: Sequence[float], window: int = 0) -> Contest:
    """Hold means against counts of 1, one a minute."""
    made = Contest()
    for minute, (was, new) in enumerate(zip(champion, challenger, strict=True)):
        made.add(window, 60.0 * minute, champion=was, challenger=new, count=1)
    return made


def standing(change: float, low: float, high: float, blocks: int = 100) -> Standing:
    return Standing(1_000, blocks, 1.0, 1.0 + change, change, (low, high))


def test_losses_are_added_up_as_worked_by_hand() -> None:
    found = contest([2.0, 2.0], [1.0, 3.0]).standing()
    assert found is not None
    # Where 1 came, a mean of m has the Poisson deviance 2 (log(1 / m) - (1 - m)).
    two, three = 2.0 * (1.0 - log(2.0)), 2.0 * (2.0 - log(3.0))
    assert (found.labels, found.blocks) == (2, 2)
    assert found.champion == pytest.approx(two)
    assert found.challenger == pytest.approx(three / 2.0)
    assert found.change == pytest.approx(three / two / 2.0 - 1.0)


def test_labels_of_one_minute_of_one_window_are_one_block() -> None:
    made = Contest()
    for window, at_s in ((0, 0.0), (0, 59.9), (0, 60.0), (1, 0.0)):
        made.add(window, at_s, champion=2.0, challenger=3.0, count=1)
    found = made.standing()
    assert found is not None
    assert (found.labels, found.blocks) == (4, 3)


def test_a_lucky_minute_is_no_win_and_a_steady_lead_is() -> None:
    lucky = contest([20.0] + [2.0] * 39, [1.0] + [2.01] * 39).standing()
    steady = contest([2.0, 1.8] * 20, [1.9, 1.7] * 20).standing()
    assert lucky is not None
    assert steady is not None
    assert lucky.change < -0.5 < steady.change  # far ahead, by one minute of forty
    assert not lucky.better
    assert steady.better


def test_too_few_minutes_are_no_win() -> None:
    few = contest([2.0] * (FEWEST_BLOCKS - 1), [1.0] * (FEWEST_BLOCKS - 1)).standing()
    assert few is not None
    assert few.change_ci[1] < 0.0
    assert not few.better


@pytest.mark.parametrize(("windows", "kept"), [(1, 20), (2, 40), (3, 80), (4, 80)])
def test_the_later_half_is_of_the_windows_or_of_the_only_ones_minutes(
    windows: int, kept: int
) -> None:
    made = Contest()
    for window in range(windows):
        for minute in range(40):
            made.add(window, 60.0 * minute, champion=2.0, challenger=1.0 + window, count=1)
    found = made.standing(later_half=True)
    assert found is not None
    assert found.blocks == kept


def test_the_oldest_blocks_are_let_go_of() -> None:
    made = Contest(most_blocks=10)
    for minute in range(5_000):
        made.add(0, 60.0 * minute, champion=2.0, challenger=1.0, count=minute // 2_500)
    found = made.standing()
    assert found is not None
    assert found.blocks == 10
    assert found.challenger < 1e-6  # exact for the counts of 1 that came last


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=60))
def test_a_model_never_beats_itself(means: list[float]) -> None:
    found = contest(means, means).standing()
    assert found is not None
    assert (found.change, found.change_ci) == (0.0, (0.0, 0.0))
    assert not found.better
    assert not found.worse


def test_an_interval_holds_what_is_true_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        # Both are off by as much on average, each minute by another factor.
        factors = np.exp(rng.normal(0.0, 0.3, size=(2, 40)))
        found = contest(*factors.tolist()).standing()
        assert found is not None
        held += found.change_ci[0] <= 0.0 <= found.change_ci[1]
    assert 175 <= held <= 198  # 190 expected; a percentile interval of 40 blocks is a bit narrow


def test_nothing_to_go_by_is_said() -> None:
    assert Contest().standing() is None
    said = "too little to tell: 0 minutes with forecasts, 20 needed"
    assert decide({15.0: None}, 15.0) == Verdict(False, said)
    few = decide({15.0: standing(-0.5, -0.6, -0.4, blocks=7)}, 15.0)
    assert few == Verdict(False, "too little to tell: 7 minutes with forecasts, 20 needed")


def test_who_is_better_where_it_counts_and_worse_nowhere_wins() -> None:
    ahead, behind = standing(-0.1, -0.2, -0.05), standing(0.1, 0.05, 0.2)
    unsure = standing(-0.1, -0.2, 0.05)
    assert decide({15.0: ahead, 60.0: unsure}, 15.0).better
    assert not decide({15.0: unsure, 60.0: ahead}, 15.0).better
    assert "may be chance" in decide({15.0: unsure}, 15.0).reason
    assert "may be chance" not in decide({15.0: behind}, 15.0).reason
    lost = decide({15.0: ahead, 60.0: behind}, 15.0)
    assert not lost.better
    assert lost.reason == (
        "Poisson deviance at 15 s 0.9 against 1, -10.0 % (-20.0 to -5.0), over 1,000 forecasts in "
        "100 minutes, but worse at 60 s: 1.1 against 1, +10.0 % (+5.0 to +20.0), over 1,000 "
        "forecasts in 100 minutes"
    )
