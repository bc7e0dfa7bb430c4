from random import Random

import numpy as np
import pytest

from models.counts import Counts
from models.dispersion import LEVELS, Dispersion


@pytest.mark.parametrize(("mean", "shape"), [(5.0, 0.5), (5.0, 2.0), (50.0, 1.0), (0.7, 0.8)])
def test_it_finds_the_shape_of_negative_binomial_counts(mean: float, shape: float) -> None:
    rng = np.random.default_rng(3)
    counts = rng.negative_binomial(shape, shape / (shape + mean), 20_000)
    scatter = Dispersion()
    for count in counts:
        scatter.learn(mean, int(count))
    assert scatter.shape(mean) == pytest.approx(shape, rel=0.25)


def test_poisson_counts_get_a_large_shape() -> None:
    rng = np.random.default_rng(4)
    scatter = Dispersion()
    for count in rng.poisson(8.0, 20_000):
        scatter.learn(8.0, int(count))
    assert scatter.shape(8.0) > 30.0


def test_levels_learn_by_themselves() -> None:
    scatter = Dispersion()
    before = scatter.shape(0.5)
    for k in range(1000):
        scatter.learn(20.0, 40 * (k % 2))
    assert scatter.shape(0.5) == before
    assert scatter.shape(20.0) == pytest.approx(1.05, rel=0.1)
    assert list(LEVELS) == sorted(LEVELS)


def test_where_next_to_nothing_comes_the_prior_holds() -> None:
    rng = np.random.default_rng(5)
    scatter = Dispersion()
    for count in rng.poisson(0.005, 10_000):
        scatter.learn(0.005, int(count))
    assert scatter.shape(0.005) == pytest.approx(2.0, rel=0.3)


def test_counts_without_scatter_are_that_many_sure_trials() -> None:
    scatter = Dispersion()
    for _ in range(5000):
        scatter.learn(3.0, 3)
    assert scatter.shape(3.0) == pytest.approx(-3.0, abs=0.01)
    assert Counts(3.0, scatter.shape(3.0)).at_least(3) > 0.98


def test_an_event_that_comes_once_or_not_is_one_trial() -> None:
    scatter, rng = Dispersion(), Random(1)
    for _ in range(20_000):
        scatter.learn(0.6, int(rng.random() < 0.6))
    assert scatter.shape(0.6) == pytest.approx(-1.0, abs=0.1)
    assert Counts(0.6, scatter.shape(0.6)).at_least(2) < 0.03
