from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import pytest

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies import POLICIES
from policies.base import ClusterView, Copy, Decision, Due, Foresight
from policies.btb import Btb
from policies.checks import (
    CHECKS,
    Make,
    check_every_replica_is_ranked_once,
    check_the_same_seed_decides_the_same,
    check_what_is_done_ahead_can_be_carried_out,
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


class Reckless(Btb):
    """Looks ahead, and sends what is asked for from the first replica, whatever that has."""

    def anticipate(self, due: Sequence[Due], cluster: ClusterView, now_s: float) -> Foresight:
        one = due[0]
        names, size_bytes = cluster.replicas, len(one.chain) * cluster.block_bytes
        copy = Copy(
            one.forecast.prefix, one.chain, names[0], names[1], size_bytes, now_s, 1.0, 1.0, "x"
        )
        return Foresight(copies=(copy,))


def test_a_policy_that_moves_ahead_what_nobody_has_is_found_out() -> None:
    check_what_is_done_ahead_can_be_carried_out(Btb)
    with pytest.raises(AssertionError, match="a copy is from a replica that has it"):
        check_what_is_done_ahead_can_be_carried_out(Reckless)


def test_a_policy_with_chance_of_its_own_is_found_out() -> None:
    with pytest.raises(AssertionError, match="is not"):
        check_the_same_seed_decides_the_same(Unseeded)
