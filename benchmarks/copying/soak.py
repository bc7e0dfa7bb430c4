"""Copies over TCP for minutes: some are called off, some find a holder gone, all are exact."""

import asyncio
import time
from random import Random
from typing import Any

from benchmarks.copying.ends import TENANT, TOKEN, End, agent_process, chain
from benchmarks.copying.ends import start as start_end
from replication.control.address import Address
from replication.control.remote import AgentHolder
from replication.executor import Executor
from replication.peer import Holder
from replication.plan import Move
from replication.store import BlockPool, State
from replication.target import Target

LAYERS = [[65_536] * 8, [65_536] * 8]
BLOCKS = 32
SPELL_S = 20.0
"""How long a source lasts; then another one takes its place, as after a crash."""


def soak(seconds: float) -> dict[str, Any]:
    """Return what came of it; any wrong byte, lost slot or lease left is an error."""
    totals = {"copies": 0, "whole": 0, "called_off": 0, "failed": 0, "gib": 0.0, "wrong_blocks": 0}
    chance = Random(1)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        spell_s = min(SPELL_S, max(1.0, end_s - time.monotonic()))
        with agent_process(End(LAYERS, BLOCKS, BLOCKS)) as source:
            asyncio.run(_spell(source.address, spell_s, chance, totals))
    return {"seconds": seconds, **totals}


async def _spell(source: str, seconds: float, chance: Random, totals: dict[str, float]) -> None:
    agent, _, transport = await start_end(End(LAYERS, BLOCKS, 0))
    holder = AgentHolder(Address.parse(source), TOKEN)
    gone = AgentHolder(Address.parse("127.0.0.1:1"), TOKEN)
    holders: dict[str, Holder] = {"source": holder, "gone": gone}
    executor = Executor(
        {"here": Target(agent.pool, transport)}, holders, clock=time.monotonic, chunk_bytes=1 << 20
    )
    offer = await holder.lease(TENANT, chain(BLOCKS), 5.0)
    await holder.release(offer.lease)
    digests = dict(zip(chain(BLOCKS), zip(*offer.digests, strict=True), strict=True))
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        names = ("gone", "source") if chance.random() < 0.05 else ("source",)
        wanted = chain(chance.randint(1, BLOCKS))
        size_bytes = len(wanted) * agent.pool.layout.block_bytes
        move = Move(TENANT, wanted, names, "here", size_bytes, float("inf"), 1.0, "")
        running = asyncio.create_task(executor.run([move]))
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 0.03)
            executor.cancel("here", TENANT, wanted[-1])
        (result,) = await running
        totals["copies"] += 1
        totals["whole"] += result.ok
        totals["called_off"] += type(result.error).__name__ == "Cancelled"
        totals["failed"] += not result.ok and type(result.error).__name__ != "Cancelled"
        totals["gib"] += result.moved_bytes / (1 << 30)
        totals["wrong_blocks"] += _check(agent.pool, wanted, digests)
        states = agent.pool.states(time.monotonic())
        if agent.pool.leases(time.monotonic()) or states[State.FILLING]:
            raise SystemExit(f"something was left: {states}")
        for block in wanted:
            agent.pool.reclaim(TENANT, block)
    holder.close()
    gone.close()
    await agent.aclose()


def _check(pool: BlockPool, wanted: tuple[int, ...], digests: dict[int, tuple[object, ...]]) -> int:
    """Return how many of the blocks that can be seen are not what the source has."""
    seen = wanted[: pool.resident(TENANT, wanted)]
    lease = pool.lease(TENANT, seen, 0.0, -1.0)
    pool.release(lease)
    found = [tuple(pool.digest(slot, rank) for rank in pool.layout.ranks) for slot in lease.slots]
    return sum(one != digests[block] for block, one in zip(seen, found, strict=True))
