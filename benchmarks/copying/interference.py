"""Requests that are served over a link on which copies take what is left of it."""

import asyncio
import statistics
import time
from typing import Any

from benchmarks.copying.ends import TENANT, TOKEN, End, agent_process, background, call, chain
from benchmarks.copying.ends import start as start_end
from benchmarks.copying.models import layer_bytes
from benchmarks.copying.namespaces import star
from replication.control.address import Address
from replication.control.remote import AgentHolder
from replication.executor import Executor
from replication.plan import Move
from replication.target import Target

PORT = 5300
ANSWER_BYTES = 16 << 10
PACE_S = 0.005
SHARE = 0.6
"""What copies are given of the link; serving takes a quarter of a link of 100 Mbit/s."""
CHUNK_BYTES = 256 << 10


BLOCKS = 2
BURST = "3kb"
"""Two packets: with more, an answer on an idle link would not be held to its rate."""


def interference(mbit: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Return the serving load's p50 and p99 without copies and with, medians over rounds."""
    layers = layer_bytes("qwen3-8b", 16)
    with star(["a", "b"], mbit, BURST) as ends:
        (there, address), (here, mine) = ends["a"], ends["b"]
        source = agent_process(End(layers, BLOCKS, BLOCKS, "tcp", address), there)
        with source as agent, background("interference", "serve", {"host": address}, there):
            options = {"mbit": mbit, "seconds": seconds, "rounds": rounds}
            ways = {"source": agent.address, "server": address, "host": mine}
            rows = call("interference", "run", {**ways, **options}, here)
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    rises = [row["p99_with_ms"] / row["p99_without_ms"] - 1.0 for row in rows]
    return {"mbit": mbit, **medians, "p99_rise": statistics.median(rises)}


async def serve(host: str) -> None:
    """Answer each request of a byte."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1):
            writer.write(bytes(ANSWER_BYTES))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, host, PORT)
    await server.serve_forever()


async def latencies(host: str, seconds: float) -> list[float]:
    """Ask at a steady pace, one request at a time; return how long each took, sorted."""
    reader, writer = await asyncio.open_connection(host, PORT)
    found = []
    began_s = next_s = time.monotonic()
    while next_s < began_s + seconds:
        await asyncio.sleep(next_s - time.monotonic())
        asked_s = time.monotonic()
        writer.write(b"?")
        await reader.readexactly(ANSWER_BYTES)
        found.append(time.monotonic() - asked_s)
        next_s = max(next_s + PACE_S, time.monotonic())
    writer.close()
    await writer.wait_closed()
    return sorted(found)


async def run(
    source: str, server: str, host: str, mbit: int, seconds: float, rounds: int
) -> list[dict[str, float]]:
    """Ask the server, in turns without and with copies from the agent beside it."""
    agent, _, transport = await start_end(End(layer_bytes("qwen3-8b", 16), BLOCKS, 0, "tcp", host))
    holder = AgentHolder(Address.parse(source), TOKEN)
    link_bytes_s = mbit * 1e6 / 8
    executor = Executor(
        {"here": Target(agent.pool, transport)},
        {"source": holder},
        clock=time.monotonic,
        rates_bytes_s={("here", "in"): SHARE * link_bytes_s},
        chunk_bytes=CHUNK_BYTES,
        window=2,
    )
    size_bytes = BLOCKS * agent.pool.layout.block_bytes
    move = Move(TENANT, chain(BLOCKS), ("source",), "here", size_bytes, float("inf"), 1.0, "")
    moved_bytes = 0

    async def copies() -> None:
        nonlocal moved_bytes
        while True:
            (result,) = await executor.run([move])
            if result.error is not None:
                raise result.error
            moved_bytes += result.moved_bytes
            for block in chain(BLOCKS):
                agent.pool.reclaim(TENANT, block)

    rows = []
    for _ in range(rounds):
        without = await latencies(server, seconds)
        copying = asyncio.create_task(copies())
        moved_bytes, began_s = 0, time.monotonic()
        beside = await latencies(server, seconds)
        share = moved_bytes / (time.monotonic() - began_s) / link_bytes_s
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)
        for block in chain(BLOCKS):
            agent.pool.reclaim(TENANT, block)
        rows.append({**_row("without", without), **_row("with", beside), "copies_share": share})
    holder.close()
    await agent.aclose()
    return rows


def _row(name: str, sorted_s: list[float]) -> dict[str, float]:
    middle, high = sorted_s[len(sorted_s) // 2], sorted_s[int(0.99 * len(sorted_s))]
    return {f"p50_{name}_ms": 1e3 * middle, f"p99_{name}_ms": 1e3 * high}
