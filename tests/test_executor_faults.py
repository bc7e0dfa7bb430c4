"""Each step of a copy fails in turn: nothing is to be seen, no slot lost, no lease left."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from replicas import (
    CHAIN,
    FAULTS,
    LAYOUT,
    Faulty,
    Lab,
    move,
)

from replication.errors import (
    LeaseLost,
    PeerGone,
    Refused,
    ReplicationError,
)
from replication.layout import Layout
from replication.lease import Lease
from replication.peer import Holder, Offer
from replication.transports.base import Piece, Region
from replication.transports.memory import intact


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_read_leaves_nothing_behind(fault: str) -> None:
    make_wire, error = FAULTS[fault]
    lab = Lab()
    lab.wire = make_wire(lab)
    (result,) = lab.run(move())
    assert type(result.error) is error
    assert result.moved_bytes == 0
    assert result.wasted_bytes > 0
    lab.check_nothing_came()


@pytest.mark.parametrize("fault", FAULTS)
def test_another_holder_is_asked_when_one_fails(fault: str) -> None:
    make_wire, _ = FAULTS[fault]
    lab = Lab()
    bad = make_wire(lab)

    async def wire(region: Region, piece: Piece, held: memoryview) -> bytes | memoryview:
        return await (bad if region.peer == "a" else intact)(region, piece, held)

    lab.wire = wire
    (result,) = lab.run(move(holders=("a", "c")))
    assert result.ok
    assert result.retries == 1
    assert "c" in result.path
    assert result.wasted_bytes > 0
    assert lab.b.holds(CHAIN)
    lab.check_nothing_is_left()


@pytest.mark.parametrize("at", ["lease", "verify"])
@pytest.mark.parametrize("error", [PeerGone("died"), LeaseLost("restarted"), Refused("no")])
def test_a_holder_that_fails_leaves_nothing_behind(at: str, error: ReplicationError) -> None:
    lab = Lab()
    lab.holders["a"] = Faulty(lab.a.holder, at, error)
    (result,) = lab.run(move())
    assert result.error is error
    lab.check_nothing_came()


def test_a_holder_that_dies_before_it_is_told_of_the_end_changes_nothing() -> None:
    lab = Lab()
    lab.holders["a"] = Faulty(lab.a.holder, "release", PeerGone("died"))
    (result,) = lab.run(move())
    assert result.ok
    assert lab.b.holds(CHAIN)


@pytest.mark.parametrize("at", ["lease", "verify"])
def test_a_holder_that_hangs_is_left_for_another(at: str) -> None:
    lab = Lab()
    lab.holders["a"] = Faulty(lab.a.holder, at, None)
    executor = lab.executor(lease_s=0.4)
    (result,) = asyncio.run(executor.run([move(holders=("a", "c"))]))
    assert result.ok
    assert result.retries == 1
    assert lab.b.holds(CHAIN)


OfferChange = Callable[[Offer], Offer]
LIES: dict[str, OfferChange] = {
    "another layout": lambda offer: replace(offer, layout=Layout(8, ((80,), (40,)))),
    "a block too few": lambda offer: replace(
        offer, lease=replace(offer.lease, slots=offer.lease.slots[1:])
    ),
    "a rank too few": lambda offer: replace(offer, regions=offer.regions[1:]),
    "no digests": lambda offer: replace(offer, digests=()),
    "a digest too few": lambda offer: replace(offer, digests=((1, 2), (1, 2))),
    "a slot outside": lambda offer: replace(
        offer, lease=replace(offer.lease, slots=(0, 1, LAYOUT.slots))
    ),
    "a slot before": lambda offer: replace(offer, lease=replace(offer.lease, slots=(0, 1, -1))),
}


class Liar(Faulty):
    """A holder whose offers are not what they should be."""

    def __init__(self, holder: Holder, change: OfferChange) -> None:
        super().__init__(holder, "", None)
        self._change = change
        self._real: Lease | None = None

    async def lease(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        offer = await super().lease(tenant, chain, length_s)
        self._real = offer.lease
        return self._change(offer)

    async def release(self, lease: Lease) -> None:
        assert self._real is not None
        await super().release(self._real)


@pytest.mark.parametrize("lie", LIES)
def test_an_offer_that_can_not_be_is_refused(lie: str) -> None:
    lab = Lab()
    lab.holders["a"] = Liar(lab.a.holder, LIES[lie])
    (result,) = lab.run(move())
    assert type(result.error) is Refused
    lab.check_nothing_came()


def test_what_the_holder_has_lost_is_not_brought() -> None:
    lab = Lab()
    lab.a.pool.reclaim("t", CHAIN[2])
    (result,) = lab.run(move())
    assert type(result.error) is LeaseLost
    lab.check_nothing_came()


def test_another_tenant_gets_nothing_of_it() -> None:
    lab = Lab()
    (result,) = lab.run(move(tenant="u"))
    assert type(result.error) is LeaseLost
    assert result.wasted_bytes == 0
    lab.check_nothing_came()
