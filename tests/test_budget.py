import asyncio
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.budget import Budget, Link
from replication.pacer import Pacer

A_OUT: Link = ("a", "out")
B_IN: Link = ("b", "in")
C_IN: Link = ("c", "in")


def test_the_worthiest_goes_first_and_the_next_when_its_bytes_have_gone() -> None:
    budget = Budget({A_OUT: 100.0})
    cheap = budget.ask([A_OUT, B_IN], 50, worth=1.0)
    dear = budget.ask([A_OUT, C_IN], 200, worth=2.0)
    assert budget.grant(now_s=0.0) == [dear]
    assert budget.next_s() == 2.0
    assert budget.grant(now_s=1.9) == []
    assert budget.grant(now_s=2.0) == [cheap]
    assert budget.next_s() == inf


def test_who_comes_later_and_is_worth_more_goes_first_at_the_next_chunk() -> None:
    budget = Budget({A_OUT: 10.0})
    budget.ask([A_OUT], 10, worth=1.0)
    budget.grant(now_s=0.0)
    budget.ask([A_OUT], 10, worth=1.0)
    urgent = budget.ask([A_OUT], 10, worth=5.0)
    assert budget.grant(now_s=1.0) == [urgent]


def test_equal_ones_go_in_order() -> None:
    budget = Budget({A_OUT: 10.0})
    first = budget.ask([A_OUT], 10, worth=1.0)
    budget.ask([A_OUT], 10, worth=1.0)
    assert budget.grant(now_s=0.0) == [first]


def test_a_link_without_a_rate_is_always_free() -> None:
    budget = Budget({})
    asks = [budget.ask([A_OUT, B_IN], 10**12, worth=1.0) for _ in range(3)]
    assert budget.grant(now_s=0.0) == asks


def test_nothing_cheaper_takes_a_link_that_a_worthier_one_waits_for() -> None:
    budget = Budget({A_OUT: 10.0, B_IN: 10.0})
    budget.ask([A_OUT], 10, worth=9.0)
    budget.grant(now_s=0.0)
    dear = budget.ask([A_OUT, B_IN], 10, worth=5.0)
    budget.ask([B_IN], 1000, worth=1.0)
    assert budget.grant(now_s=0.5) == []
    assert budget.grant(now_s=1.0) == [dear]


def test_who_withdraws_is_not_waited_for() -> None:
    budget = Budget({A_OUT: 10.0})
    dear = budget.ask([A_OUT], 10, worth=5.0)
    cheap = budget.ask([A_OUT], 10, worth=1.0)
    budget.withdraw(dear)
    budget.withdraw(dear)
    assert budget.grant(now_s=0.0) == [cheap]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Budget({A_OUT: rate})


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from([A_OUT, B_IN, C_IN]), min_size=1),
            st.integers(1, 100),
            st.floats(0.0, 10.0),
        ),
        min_size=1,
        max_size=15,
    )
)
def test_all_get_their_turn_and_no_link_carries_more_than_its_rate(
    wanted: list[tuple[set[Link], int, float]],
) -> None:
    budget = Budget({A_OUT: 10.0, B_IN: 20.0})
    for links, size_bytes, worth in wanted:
        budget.ask(links, size_bytes, worth)
    busy_until_s: dict[Link, float] = {}
    now_s, served = 0.0, 0
    for _ in range(2 * len(wanted)):
        for ask in budget.grant(now_s):
            served += 1
            for link in ask.links:
                assert busy_until_s.get(link, 0.0) <= now_s
                rate = {A_OUT: 10.0, B_IN: 20.0}[link]
                busy_until_s[link] = now_s + ask.size_bytes / rate
        if budget.next_s() == inf:
            break
        now_s = max(now_s, budget.next_s())
    assert served == len(wanted)


def test_a_pacer_lets_the_worthiest_of_those_that_wait_go_next() -> None:
    async def scenario() -> list[str]:
        pacer = Pacer({A_OUT: 1e6})
        order: list[str] = []

        async def go(name: str, worth: float) -> None:
            await pacer.turn([A_OUT], 1000, worth)
            order.append(name)

        async with asyncio.TaskGroup() as group:
            for name, worth in (("first", 1.0), ("cheap", 1.0), ("dear", 9.0), ("fair", 5.0)):
                group.create_task(go(name, worth))
        return order

    assert asyncio.run(scenario()) == ["first", "dear", "fair", "cheap"]


def test_who_is_called_off_in_line_holds_up_nobody() -> None:
    async def scenario() -> None:
        pacer = Pacer({A_OUT: 1e6})
        await pacer.turn([A_OUT], 1000, 1.0)
        waits = asyncio.create_task(pacer.turn([A_OUT], 1000, 9.0))
        behind = asyncio.create_task(pacer.turn([A_OUT], 1000, 1.0))
        await asyncio.sleep(0)
        waits.cancel()
        await behind
        assert waits.cancelled()

    asyncio.run(scenario())
