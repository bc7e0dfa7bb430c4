from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import pytest

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies import POLICIES
from policies.base import ClusterView, Decision
from policies.checks import (
    CHECKS,
    Make,
    check_every_replica_is_ranked_once,
    check_the_same_seed_decides_the_same,
)
from policies.fixed import FixedRule


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_in_the_box(name: str, check: Callable[[Make], None]) -> None:
    check(partial(POLICIES[name]))


class FirstOnly(FixedRule):
    def __init__(self, rng: Random) -> None:
        del rng

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        return Decision((cluster.replicas[0],))


class Unseeded(FixedRule):
    def __init__(self, rng: Random) -> None:
        del rng
        self._rng = Random()

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        names = list(cluster.replicas)
        self._rng.shuffle(names)
        return Decision(tuple(names))


def test_a_policy_that_names_one_replica_is_found_out() -> None:
    with pytest.raises(AssertionError, match="ranked"):
        check_every_replica_is_ranked_once(FirstOnly)


def test_a_policy_with_chance_of_its_own_is_found_out() -> None:
    with pytest.raises(AssertionError, match="is not"):
        check_the_same_seed_decides_the_same(Unseeded)
