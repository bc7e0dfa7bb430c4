from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from btb.simulation.fabric import Fabric, Flow


def test_one_source_that_sends_to_three_shares_its_link_among_them() -> None:
    # Links 0-3 out, 4-7 in, 10 bytes/s each: three flows out of 0 get a third of it each.
    fabric = Fabric([10.0] * 8)
    for target in (1, 2, 3):
        fabric.start(Flow((0, 4 + target), 100.0, target), now_s=0.0)
    assert fabric.next_end_s() == pytest.approx(30.0)
    assert [flow.tag for flow in fabric.finish(30.0)] == [1, 2, 3]
    assert fabric.next_end_s() == inf


def test_what_one_flow_cannot_use_the_others_get() -> None:
    # Link 1 lets one of the two flows over link 0 have only 2 of 10 bytes/s; the other gets 8.
    fabric = Fabric([10.0, 2.0])
    fabric.start(Flow((0,), 80.0, 1), now_s=0.0)
    fabric.start(Flow((0, 1), 200.0, 2), now_s=0.0)
    assert fabric.next_end_s() == pytest.approx(10.0)


def test_a_flow_speeds_up_when_another_ends() -> None:
    # 50 bytes each at 5 bytes/s until 10 s; the longer one's last 50 bytes then at 10 bytes/s.
    fabric = Fabric([10.0])
    fabric.start(Flow((0,), 50.0, 1), now_s=0.0)
    fabric.start(Flow((0,), 100.0, 2), now_s=0.0)
    assert [flow.tag for flow in fabric.finish(10.0)] == [1]
    assert fabric.next_end_s() == pytest.approx(15.0)


def test_what_is_offered_counts_those_that_flow_already() -> None:
    fabric = Fabric([10.0, 4.0])
    assert fabric.offered_bytes_s((0,)) == 10.0
    fabric.start(Flow((0,), 50.0, 1), now_s=0.0)
    assert fabric.offered_bytes_s((0,)) == 5.0
    assert fabric.offered_bytes_s((0, 1)) == 4.0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(3, 5), st.floats(1.0, 100.0)), max_size=8))
def test_no_link_carries_more_than_it_can_and_every_byte_arrives(
    flows: list[tuple[int, int, float]],
) -> None:
    capacities = [5.0, 7.0, 11.0, 6.0, 4.0, 9.0]
    fabric = Fabric(capacities)
    started = [Flow((out, into), size, tag) for tag, (out, into, size) in enumerate(flows)]
    for flow in started:
        fabric.start(flow, now_s=0.0)
    for link, capacity in enumerate(capacities):
        used = sum(flow.rate_bytes_s for flow in started if link in flow.links)
        assert used <= capacity * (1 + 1e-9)
    done = set()
    while (end_s := fabric.next_end_s()) < inf:
        done |= {flow.tag for flow in fabric.finish(end_s)}
    assert done == set(range(len(flows)))
