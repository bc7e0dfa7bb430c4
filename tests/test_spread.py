"""The spread that is put right by what its intervals cover."""

from collections.abc import Callable
from random import Random

import pytest

from models.counts import Counts
from models.dispersion import Dispersion
from models.spread import LARGEST_LOG, Spread, _inside


def covered(spread: Spread | Dispersion, mean: float, draw: Callable[[], int]) -> float:
    """Learn 6,000 draws, and return how much of the last 4,000 lay in the interval."""
    inside = []
    for _ in range(6000):
        count = draw()
        inside.append(_inside(Counts(mean, spread.shape(mean)), count))
        spread.learn(mean, count)
    return sum(inside[2000:]) / 4000.0


def rare_giants(rng: Random) -> Callable[[], int]:
    """Mostly 8 or so, one time in a hundred 200: the variance is nearly all of the giants."""
    return lambda: 200 if rng.random() < 0.01 else rng.choice((1, 5, 8, 8, 12, 16))


def test_an_interval_covers_four_fifths_where_matched_moments_do_not() -> None:
    assert covered(Dispersion(), 10.0, rare_giants(Random(1))) > 0.85
    assert covered(Spread(), 10.0, rare_giants(Random(1))) == pytest.approx(0.8, abs=0.04)


def test_its_state_is_all_that_it_knows() -> None:
    spread, draw = Spread(), rare_giants(Random(2))
    covered(spread, 10.0, draw)
    restored = Spread.from_state(spread.to_state())
    for mean in (0.05, 0.5, 10.0, 50.0):
        assert restored.shape(mean) == spread.shape(mean)


def test_a_state_that_cannot_be_is_refused() -> None:
    state = Spread().to_state()
    for logs in ([0.0], [LARGEST_LOG + 1.0] * 9, [-LARGEST_LOG - 1.0] * 9):
        with pytest.raises(ValueError, match="logs"):
            Spread.from_state({**state, "logs": logs})
