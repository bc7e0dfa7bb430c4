"""Agents elsewhere: as holders of blocks, and as what a controller gives orders to."""

from collections.abc import Mapping, Sequence

from replication.control.address import Address
from replication.control.channel import Channel
from replication.control.messages import (
    LONGEST_COPY_S,
    LONGEST_WAIT_S,
    AskCancel,
    AskCopy,
    AskDrop,
    AskEvents,
    AskFill,
    AskFollow,
    AskLanded,
    AskLease,
    AskList,
    AskRelease,
    AskVerify,
    Listing,
    Order,
    Outcome,
)
from replication.errors import Refused
from replication.events import Events
from replication.lease import Lease
from replication.peer import Offer
from replication.plan import Move
from replication.result import Result

HOLDER_PATIENCE_S = 0.3
"""How long to look for a holder that isn't there; another one may have the blocks."""
PATIENCE_S = 5.0
"""How long to look for an agent that isn't there: it may be starting anew."""
CALL_S = 10.0
"""How long an agent may take to answer what takes no time."""


class AgentHolder:
    """A `Holder`, and a `Forwarder`, that is asked over a channel, for an executor like any."""

    def __init__(self, address: Address, token: bytes) -> None:
        self._channel = Channel(address, token, HOLDER_PATIENCE_S)

    async def lease(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        """Have the blocks pinned. Where the answer is lost the lease ends by itself."""
        request = AskLease(tenant, tuple(chain), min(length_s, LONGEST_COPY_S))
        return await self._channel.ask(request, Offer, min(length_s, CALL_S))

    async def follow(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        """Have blocks pinned that may still be on their way there."""
        request = AskFollow(tenant, tuple(chain), min(length_s, LONGEST_COPY_S))
        return await self._channel.ask(request, Offer, min(length_s, CALL_S))

    async def landed(self, lease: Lease, beyond_bytes: int) -> tuple[int, ...]:
        """Ask how much of them can be read."""
        request = AskLanded(lease, beyond_bytes)
        return await self._channel.ask(request, tuple[int, ...], CALL_S)

    async def verify(self, lease: Lease) -> None:
        """Ask whether the lease was kept."""
        await self._channel.ask(AskVerify(lease), type(None), CALL_S)

    async def release(self, lease: Lease) -> None:
        """End a lease."""
        await self._channel.ask(AskRelease(lease), type(None), CALL_S)

    def close(self) -> None:
        """Let go of connections."""
        self._channel.close()


class AgentClient:
    """What a controller can have an agent do.

    Each method raises a ReplicationError if the agent can't be reached, refuses or doesn't answer.
    Calls are sent again while the agent isn't there, for `patience_s`.
    """

    def __init__(self, address: Address, token: bytes, patience_s: float = PATIENCE_S) -> None:
        self._channel = Channel(address, token, patience_s)

    async def copy(
        self, plan: Sequence[Move], addresses: Mapping[str, str], now_s: float
    ) -> list[Result]:
        """Have the agent carry out moves to itself; return what came of each, in order.

        Asked twice, it moves bytes once. A copy goes on when whoever asked for it is gone.

        Parameters
        ----------
        plan
            What to bring; targets are not looked at.
        addresses
            Where the agents of replicas listen. A holder that isn't named is an address itself.
        now_s
            The time, on the clock that deadlines are on. The agent is given what is left.
        """
        orders = tuple(_order(move, addresses, now_s) for move in plan)
        longest_s = max([0.0, *(order.within_s for order in orders)])
        asked = AskCopy(orders)
        found = await self._channel.ask(asked, tuple[Outcome, ...], longest_s + CALL_S)
        if len(found) != len(orders):
            raise Refused(f"{len(found)} answers to {len(orders)} orders")
        return [outcome.result(move) for move, outcome in zip(plan, found, strict=True)]

    async def cancel(self, tenant: str, block: int) -> int:
        """Call off copies of the prefix that ends with `block`; return how many there were."""
        return await self._channel.ask(AskCancel(tenant, block), int, CALL_S)

    async def list(self) -> Listing:
        """Return what the agent has."""
        return await self._channel.ask(AskList(), Listing, CALL_S)

    async def drop(self, tenant: str, chain: Sequence[int]) -> int:
        """Have blocks given up that nobody leases; return how many."""
        return await self._channel.ask(AskDrop(tenant, tuple(chain)), int, CALL_S)

    async def events(self, epoch: int, number: int, wait_s: float = 0.0) -> Events:
        """Return what happened from batch `number` of `epoch` on, or a snapshot in its place.

        If there is nothing to tell, the agent waits for `wait_s` first, 30 s at most.
        """
        wait_s = min(wait_s, LONGEST_WAIT_S)
        asked = AskEvents(epoch, number, wait_s)
        return await self._channel.ask(asked, Events, wait_s + CALL_S)

    async def fill(self, tenant: str, chain: Sequence[int], seed: int) -> int:
        """Have random bytes put in place of KV, where the agent was started for trying out."""
        return await self._channel.ask(AskFill(tenant, tuple(chain), seed), int, LONGEST_WAIT_S)

    def close(self) -> None:
        """Let go of connections."""
        self._channel.close()


def _order(move: Move, addresses: Mapping[str, str], now_s: float) -> Order:
    return Order(
        move.tenant,
        move.chain,
        tuple(addresses.get(name, name) for name in move.holders),
        move.size_bytes,
        min(move.deadline_s - now_s, LONGEST_COPY_S),
        move.value_s,
        move.reason[:256],
        addresses.get(move.via, move.via),
        move.striped,
    )
