from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.errors import LeaseLost
from replication.lease import Lease, Leases


def test_a_lease_pins_its_slots_in_the_generation_they_had() -> None:
    leases = Leases(epoch=1)
    leases.grant((3,), (7,), until_s=10.0)
    assert leases.pinned(3, 7)
    assert not leases.pinned(3, 8)
    assert not leases.pinned(4, 7)


def test_a_lease_ends_by_itself_at_its_time() -> None:
    leases = Leases(epoch=1)
    lease = leases.grant((0, 1), (0, 0), until_s=10.0)
    leases.check(lease, now_s=9.9)
    with pytest.raises(LeaseLost, match="lease 1 has ended"):
        leases.check(lease, now_s=10.0)
    assert not leases.pinned(0, 0)
    assert len(leases) == 0


def test_a_block_stays_pinned_until_its_last_lease_ends() -> None:
    leases = Leases(epoch=1)
    short = leases.grant((0,), (0,), until_s=5.0)
    leases.grant((0,), (0,), until_s=9.0)
    leases.release(short)
    assert leases.pinned(0, 0)
    leases.expire(9.0)
    assert not leases.pinned(0, 0)


def test_releasing_twice_ends_one_lease() -> None:
    leases = Leases(epoch=1)
    first = leases.grant((0,), (0,), until_s=5.0)
    leases.grant((0,), (0,), until_s=5.0)
    leases.release(first)
    leases.release(first)
    assert leases.pinned(0, 0)
    assert len(leases) == 1


def test_a_lease_from_before_a_restart_is_refused_and_releases_nothing() -> None:
    before = Leases(epoch=1).grant((0,), (0,), until_s=inf)
    leases = Leases(epoch=2)
    leases.grant((0,), (0,), until_s=inf)
    with pytest.raises(LeaseLost, match="epoch 1; the holder is in epoch 2"):
        leases.check(before, now_s=0.0)
    leases.release(before)
    assert leases.pinned(0, 0)


def test_a_lease_that_was_made_up_is_refused_and_releases_nothing() -> None:
    leases = Leases(epoch=1)
    real = leases.grant((0,), (0,), until_s=inf)
    forged = Lease(real.number, 1, (1, 2), (0, 0), inf)
    with pytest.raises(LeaseLost):
        leases.check(forged, now_s=0.0)
    leases.release(forged)
    leases.check(real, now_s=0.0)


times = st.floats(0.0, 100.0)


@given(ends=st.lists(st.tuples(st.integers(0, 3), times)), now_s=times)
def test_at_any_time_exactly_what_has_not_run_out_is_pinned(
    ends: list[tuple[int, float]], now_s: float
) -> None:
    leases = Leases(epoch=1)
    for slot, until_s in ends:
        leases.grant((slot,), (0,), until_s)
    leases.expire(now_s)
    alive = [slot for slot, until_s in ends if until_s > now_s]
    assert len(leases) == len(alive)
    assert {slot for slot in range(4) if leases.pinned(slot, 0)} == set(alive)
