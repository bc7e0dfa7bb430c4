"""One beside each replica: answers for its pool, and brings copies into it."""

import asyncio
import os
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from replication.control.address import Address, listen
from replication.control.messages import (
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
    Request,
    TenantBlocks,
)
from replication.control.remote import AgentHolder
from replication.control.server import ControlServer
from replication.errors import Busy, Refused
from replication.events import EventLog, Events
from replication.executor import Executor
from replication.forwarding import PoolForwarder
from replication.layout import Layout
from replication.peer import Offer, PoolHolder
from replication.plan import Move
from replication.result import Result
from replication.store import BlockPool
from replication.target import Target
from replication.transports.base import Transport
from replication.transports.choice import AutoTransport
from replication.trial import fill

MOST_LEASES = 4096
MOST_COPIES = 4096
MOST_HOLDERS = 1024
"""Kept at once; further leases and copies are refused, of holders the longest unused forgotten."""


def new_epoch() -> int:
    """Return a number that no earlier start had, but for a chance of 1 in 2⁶²."""
    return secrets.randbits(62)


class Agent:
    """Owns a replica's block pool and the ways to it. To be made where an event loop runs.

    Others lease its blocks and read them; controllers have it bring blocks of others. An agent
    that starts anew at the same address is of another epoch: what was leased before, and regions
    that were offered, are refused, and its pool is empty.

    Parameters
    ----------
    address
        Where to listen; port 0 for any that is free.
    token
        What callers, and agents that are asked, have to know; empty for none.
    layout, memories
        The pool: how it is cut, and the memory of each rank, which `transport` can register.
    transport
        What others read the pool by, and what copies come over. It is closed with the agent.
    epoch
        From `new_epoch`; the one that `transport` was made with.
    block_tokens
        Tokens in a block, for residency events; 0 if unknown.
    lease_s
        The most time that one try at a copy may take.
    trial
        Whether callers may have random bytes put in place of KV.
    on_result
        Is told what came of each copy.

    Raises
    ------
    TransportError
        If it can't listen there.
    ValueError
        If others than this machine could reach it without a token, or as for `BlockPool`.
    """

    def __init__(
        self,
        address: Address,
        token: bytes,
        layout: Layout,
        memories: Sequence[memoryview],
        transport: Transport,
        *,
        epoch: int,
        block_tokens: int = 0,
        lease_s: float = 30.0,
        trial: bool = False,
        on_result: Callable[[Result], None] = lambda _: None,
    ) -> None:
        if not token and not address.local:
            raise ValueError(f"{address} can be reached from elsewhere: a token is needed")
        self._token = token
        self._transport = transport
        self._block_tokens = block_tokens
        self._trial = trial
        self._on_result = on_result
        self._copies = 0
        self._now_s = asyncio.get_running_loop().time
        self.pool = BlockPool(layout, memories, epoch)
        self._events = self.pool.observer = EventLog(
            self.pool.residents,
            epoch=epoch,
            block_tokens=block_tokens,
            wall_clock=lambda: datetime.now(UTC).timestamp(),
        )
        regions = [transport.register(memory) for memory in memories]
        self._holder = PoolHolder(self.pool, regions, self._now_s, transport.digest_every)
        self._forwarder = PoolForwarder(self.pool, regions, self._now_s)
        listener, self.address = listen(address)
        self._holders: OrderedDict[str, AgentHolder] = OrderedDict()
        self._executor = Executor(
            {str(self.address): Target(self.pool, transport)},
            self._holders,
            forwarders=self._holders,
            clock=self._now_s,
            lease_s=lease_s,
        )
        self._server = ControlServer(listener, token, self._answer)

    async def aclose(self) -> None:
        """Answer no more, call copies off, and free the transport. May be called twice."""
        await self._server.aclose()
        for holder in self._holders.values():
            holder.close()
        await self._transport.aclose()
        if self.address.path:
            with suppress(FileNotFoundError):
                os.unlink(self.address.path)

    def listing(self) -> Listing:
        """Return what there is at this moment."""
        now_s = self._now_s()
        blocks, copied, used = Counter[str](), Counter[str](), Counter[str]()
        for one in self.pool.residents():
            blocks[one.tenant] += 1
            copied[one.tenant] += one.copied
            used[one.tenant] += one.copied and one.leased
        by_tenant = (TenantBlocks(who, blocks[who], copied[who], used[who]) for who in blocks)
        return Listing(
            str(self.address),
            self.pool.epoch,
            self.pool.layout.block_bytes,
            self._block_tokens,
            {str(state): count for state, count in sorted(self.pool.states(now_s).items())},
            self.pool.leases(now_s),
            self._copies,
            tuple(sorted(by_tenant, key=lambda one: one.tenant)),
            _words(self._transport),
        )

    async def _answer(self, request: Request) -> object:
        match request:
            case AskLease():
                return await self._lease(request)
            case AskFollow():
                return await self._follow(request)
            case AskLanded():
                return await self._forwarder.landed(request.lease, request.beyond_bytes)
            case AskVerify():
                await self._holder.verify(request.lease)
                return None
            case AskRelease():
                await self._holder.release(request.lease)
                return None
            case AskCopy():
                return await self._copy(request.orders)
            case AskCancel():
                return self._executor.cancel(str(self.address), request.tenant, request.block)
            case AskList():
                return self.listing()
            case AskEvents():
                return await self._tell(request)
            case AskDrop():
                return self.pool.drop(request.tenant, request.chain, self._now_s())
            case AskFill():
                return await self._fill(request)

    async def _lease(self, asked: AskLease) -> Offer:
        self._check_leases()
        return await self._holder.lease(asked.tenant, asked.chain, asked.length_s)

    async def _follow(self, asked: AskFollow) -> Offer:
        self._check_leases()
        return await self._forwarder.follow(asked.tenant, asked.chain, asked.length_s)

    def _check_leases(self) -> None:
        if self.pool.leases(self._now_s()) >= MOST_LEASES:
            raise Busy(f"{MOST_LEASES} leases stand already")

    async def _copy(self, orders: Sequence[Order]) -> tuple[Outcome, ...]:
        if self._copies + len(orders) > MOST_COPIES:
            raise Busy(f"{self._copies} copies are under way, where {MOST_COPIES} are the most")
        moves = [self._move(order) for order in orders]
        self._copies += len(orders)
        try:
            results = await self._executor.run(moves)
        finally:
            self._copies -= len(orders)
        for result in results:
            self._on_result(result)
        return tuple(map(Outcome.of, results))

    def _move(self, order: Order) -> Move:
        for text in (*order.holders, order.via):
            if text:
                self._know(text)
        return Move(
            order.tenant,
            order.chain,
            order.holders,
            str(self.address),
            order.size_bytes,
            self._now_s() + order.within_s,
            order.value_s,
            order.reason,
            order.via,
            order.striped,
        )

    def _know(self, text: str) -> None:
        if text not in self._holders:
            try:
                self._holders[text] = AgentHolder(Address.parse(text), self._token)
            except ValueError as error:
                raise Refused(f"holder {error}") from error
        self._holders.move_to_end(text)
        if len(self._holders) > MOST_HOLDERS:
            self._holders.popitem(last=False)[1].close()

    async def _tell(self, asked: AskEvents) -> Events:
        with suppress(TimeoutError):
            async with asyncio.timeout(asked.wait_s):
                await self._events.news(asked.epoch, asked.number)
        return self._events.since(asked.epoch, asked.number)

    async def _fill(self, asked: AskFill) -> int:
        if not self._trial:
            raise Refused("this agent was not started for trying out: nothing may be made up in it")
        return await fill(self.pool, asked.tenant, asked.chain, asked.seed, self._now_s())


def _words(transport: Transport) -> tuple[str, ...]:
    if isinstance(transport, AutoTransport):
        return (*transport.notes, *transport.paths.values())
    return (type(transport).__name__,)
