"""Small copies: from the decision to the commit, and the round trips on the way."""

import time
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from benchmarks.copying.ends import TENANT, TOKEN, End, agent_process, call, chain
from benchmarks.copying.ends import start as start_end
from replication.control.address import Address
from replication.control.remote import AgentHolder
from replication.executor import Executor
from replication.lease import Lease
from replication.peer import Offer
from replication.plan import Move
from replication.target import Target
from replication.transports.base import Piece, Region
from replication.transports.choice import AutoTransport

BLOCKS = (1, 16, 256)
LAYERS = [[4096] * 16]
"""Blocks of 64 KiB, so that it is the protocol that takes the time."""

T = TypeVar("T")


def small(kind: str, copies: int) -> list[dict[str, Any]]:
    """Return a row for each number of blocks."""
    end = End(LAYERS, max(BLOCKS), max(BLOCKS), kind)
    with agent_process(end) as source:
        found: list[dict[str, Any]] = call(
            "small", "run", {"source": source.address, "kind": kind, "copies": copies}
        )
    return found


class Calls:
    """Notes when each call to the other end began and ended."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []

    async def note(self, call: Awaitable[T]) -> T:
        """Wait for a call."""
        began_s = time.monotonic()
        result = await call
        self.spans.append((began_s, time.monotonic()))
        return result

    def in_turn(self) -> int:
        """Return how many calls waited for an earlier one to end: round trips one after another.

        It is the largest set of spans of which no two overlap.
        """
        count, free_s = 0, 0.0
        for began_s, ended_s in sorted(self.spans, key=lambda span: span[1]):
            if began_s >= free_s:
                count, free_s = count + 1, ended_s
        return count


class NotedHolder(AgentHolder):
    """A holder whose calls are noted; not the end of a lease, which comes after the commit."""

    calls: Calls

    async def lease(self, tenant: str, chain: Sequence[int], length_s: float) -> Offer:
        """Ask for a lease."""
        return await self.calls.note(super().lease(tenant, chain, length_s))

    async def verify(self, lease: Lease) -> None:
        """Ask whether it was kept."""
        await self.calls.note(super().verify(lease))


class NotedTransport(AutoTransport):
    """A transport whose reads are noted."""

    calls: Calls

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        """Read."""
        await self.calls.note(super().read(region, pieces, into, deadline_s))


async def run(source: str, kind: str, copies: int) -> list[dict[str, Any]]:
    """Copy again and again; the time is taken when the target's pool shows the blocks."""
    agent, _, transport = await start_end(End(LAYERS, max(BLOCKS), 0, kind))
    holder = NotedHolder(Address.parse(source), TOKEN)
    noted = await NotedTransport.start(TOKEN, kind=kind)
    executor = Executor(
        {"here": Target(agent.pool, noted)}, {"source": holder}, clock=time.monotonic
    )
    committed_s = 0.0

    def look() -> None:
        nonlocal committed_s
        if not agent.pool.missing(TENANT, chain(1)):
            committed_s = committed_s or time.monotonic()

    rows = []
    for blocks in BLOCKS:
        took_s, in_turn = [], []
        move = Move(TENANT, chain(blocks), ("source",), "here", blocks << 16, float("inf"), 1.0, "")
        for number in range(copies + 3):
            holder.calls = noted.calls = Calls()
            committed_s, began_s = 0.0, time.monotonic()
            with agent.pool.watched(look):
                (result,) = await executor.run([move])
            if result.error is not None:
                raise result.error
            if number >= 3:  # the first ones connect, and work digests out
                took_s.append(committed_s - began_s)
                in_turn.append(holder.calls.in_turn())
            for block in chain(blocks):
                agent.pool.reclaim(TENANT, block)
        took_s.sort()
        rows.append(
            {
                "transport": kind,
                "blocks": blocks,
                "kib": blocks * 64,
                "copies": copies,
                "p50_ms": 1e3 * took_s[len(took_s) // 2],
                "p99_ms": 1e3 * took_s[int(0.99 * len(took_s))],
                "round_trips": max(in_turn),
            }
        )
    holder.close()
    await noted.aclose()
    await transport.aclose()
    await agent.aclose()
    return rows
