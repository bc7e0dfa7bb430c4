"""The queue order, against a cluster that computes a token in a millisecond."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecasting.arrival import Arrival
from policies.base import ClusterView, Feedback
from policies.fixed import LeastLoad
from policies.order import AGE_PRICE, Ordered, QueueOrder, boundary_key


class Millisecond:
    """Replicas `r0` and `r1`; `r1` holds `held` blocks of whatever is asked for."""

    def __init__(self, held: int = 0) -> None:
        self._held = held
        self.replicas = ("r0", "r1")
        self.block_bytes = 1
        self.by_priority = True

    def loads(self) -> list[int]:
        return [0, 1]

    def queue_s(self, _: object = None) -> list[float]:
        return [0.0, 0.0]

    def behind(self, _: object) -> list[int]:
        return [0, 0]

    def resident_blocks(self, chain: tuple[int, ...]) -> list[int]:
        return [0, min(self._held, len(chain))]

    stored_blocks = resident_blocks

    def pending(self, _: object) -> list[tuple[int, float]]:
        return [(0, 0.0), (0, 0.0)]

    def prefill_s(self, tokens: int, context_tokens: int) -> float:
        return tokens / 1000

    def copy_s(self, source: int, target: int, size_bytes: float) -> float:
        return 1.0

    def load_s(self, replica: int, chain: tuple[int, ...]) -> float:
        return 1.0

    def free_bytes(self) -> list[float]:
        return [0.0, 0.0]


def arrival(name: str = "a", at_s: float = 0.0, blocks: int = 8) -> Arrival:
    chain = tuple(range(1, blocks + 1))
    return Arrival(at_s, chain, 1024, 1024 * blocks + 100, request_id=name)


def view(held: int = 0) -> ClusterView:
    return Millisecond(held)


def priorities(order: QueueOrder, shown: Arrival, key: int, held: int = 0) -> list[float]:
    """Return the priority of `shown` on `r0`, which holds nothing of it, and on `r1`."""
    works_s = [shown.input_tokens / 1000, (shown.input_tokens - 1024 * held) / 1000]
    return order.claims(shown, key, ["r0", "r1"]).priorities(works_s)


def test_a_priority_is_the_work_that_is_missing() -> None:
    # 8 blocks of 1,024 tokens and 100 more: 8.292 s; with 7 of them held, 1.124 s.
    assert priorities(QueueOrder(), arrival(), 7, held=7) == pytest.approx([8.292, 1.124])


def test_who_shares_the_prefix_shares_the_work() -> None:
    order = QueueOrder()
    order.note(arrival("a"), 7, "r0")
    order.note(arrival("b"), 7, "r0")
    order.note(arrival("c"), 9, "r0")
    assert priorities(order, arrival("d"), 7) == pytest.approx([8.292 / 3, 8.292])


def test_who_has_a_first_token_waits_no_more() -> None:
    order = QueueOrder()
    order.note(arrival("a"), 7, "r0")
    order.forget("a")
    order.forget("a")
    order.forget("never seen")
    assert priorities(order, arrival("d"), 7) == pytest.approx([8.292, 8.292])


def test_long_waiting_makes_up_for_much_work() -> None:
    order = QueueOrder()
    old = priorities(order, arrival(at_s=0.0), 7)[0]
    even_s = (8.292 - 1.124) / AGE_PRICE
    soon = priorities(order, arrival(at_s=even_s - 10.0, blocks=1), 7)[0]
    late = priorities(order, arrival(at_s=even_s + 10.0, blocks=1), 7)[0]
    assert soon < old < late


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["r0", "r1"]), st.booleans())))
def test_what_is_noted_and_forgotten_leaves_no_trace(
    steps: list[tuple[int, str, bool]],
) -> None:
    order = QueueOrder()
    open_names = []
    for number, (key, name, forget) in enumerate(steps):
        order.note(arrival(str(number)), key, name)
        open_names.append(str(number))
        if forget:
            order.forget(open_names.pop(0))
    for name in open_names:
        order.forget(name)
    for key in range(6):
        assert priorities(order, arrival("x"), key) == pytest.approx([8.292, 8.292])


def test_who_is_never_heard_of_again_is_forgotten_after_an_hour() -> None:
    order = QueueOrder()
    order.note(arrival("lost", at_s=0.0), 7, "r0")
    order.note(arrival("new", at_s=3599.0), 7, "r0")
    assert priorities(order, arrival("x"), 7)[0] == pytest.approx(8.292 / 3)
    order.note(arrival("newer", at_s=3601.0), 7, "r0")
    assert priorities(order, arrival("x"), 7)[0] == pytest.approx(8.292 / 3)


def test_the_boundary_is_at_2048_tokens() -> None:
    assert boundary_key(arrival()) == 2
    assert boundary_key(arrival(blocks=1)) == 1
    assert boundary_key(replace(arrival(), chain=())) == 0


def test_an_ordered_policy_goes_where_the_one_inside_goes_and_adds_a_priority() -> None:
    policy = Ordered(Random(1), LeastLoad)
    first = policy.decide(arrival("a"), (), view(), 0.0)
    second = policy.decide(arrival("b"), (), view(), 0.0)
    assert first.ranked == second.ranked == ("r0", "r1")
    assert (first.priority, second.priority) == pytest.approx((8.292, 8.292 / 2))
    policy.learn_one(first, Feedback("a", "r0", 1.0, 0))
    policy.learn_one(second, Feedback("b", "r0", 1.0, 0))
    assert policy.decide(arrival("c"), (), view(), 0.0).priority == pytest.approx(8.292)
