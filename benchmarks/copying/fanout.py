"""One prefix to 4 targets over links that are all capped the same: chained, and one by one."""

import asyncio
import statistics
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from benchmarks.copying.ends import TENANT, TOKEN, End, agent_process, call, chain
from benchmarks.copying.models import layer_bytes
from benchmarks.copying.namespaces import star
from replication.control.address import Address
from replication.control.remote import AgentClient
from replication.executor import CHUNK_BYTES
from replication.multicast import spread
from replication.plan import Move
from replication.result import Result

TARGETS = 4


def fanout(mbit: int, blocks: int, runs: int) -> dict[str, Any]:
    """Return medians of the time for one target, for 4 chained, and for 4 from the source."""
    layers = layer_bytes("qwen3-8b", 16)
    names = ["s", *(f"t{number}" for number in range(TARGETS)), "c"]
    with star(names, mbit) as ends, ExitStack() as stack:
        agents = []
        for name in names[:-1]:
            namespace, host = ends[name]
            end = End(layers, blocks, blocks if name == "s" else 0, "tcp", host)
            agents.append(stack.enter_context(agent_process(end, namespace)).address)
        arguments = {"agents": agents, "blocks": blocks, "size_bytes": end.layout.block_bytes}
        rows = call("fanout", "run", {**arguments, "runs": runs}, ends["c"][0])
    medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    return {
        "mbit": mbit,
        "mib": blocks * end.layout.block_bytes / 2**20,
        "targets": TARGETS,
        **{f"{name}_s": found for name, found in medians.items()},
        "chained_to_one": statistics.median(row["chained"] / row["one"] for row in rows),
        "one_by_one_to_one": statistics.median(row["one_by_one"] / row["one"] for row in rows),
    }


async def run(agents: list[str], blocks: int, size_bytes: int, runs: int) -> list[dict[str, float]]:
    """Order copies of agents, as a controller does; return seconds, run by run."""
    source, *targets = agents
    clients = {one: AgentClient(Address.parse(one), TOKEN) for one in targets}
    moves = [
        Move(TENANT, chain(blocks), (source,), one, blocks * size_bytes, float("inf"), 1.0, "")
        for one in targets
    ]
    # An agent cuts chunks of 16 MiB or a block, whichever is more.
    ways = {
        "one": [moves[0]],
        "chained": list(spread(moves, CHUNK_BYTES)),
        "one_by_one": [replace(one, striped=False) for one in moves],
    }
    rows = []
    for number in range(runs + 1):
        row = {}
        for name, plan in ways.items():
            began_s = time.monotonic()
            results = await asyncio.gather(*(_copy(clients[one.target], one) for one in plan))
            row[name] = time.monotonic() - began_s
            for result in results:
                if result.error is not None:
                    raise result.error
                if (name == "chained" and plan[0] is not result.move) and "via" not in result.path:
                    raise SystemExit(f"this was no chain: {result.path}")
            for one in plan:
                await clients[one.target].drop(TENANT, chain(blocks))
        if number:  # the first one connects, and works digests out
            rows.append(row)
    return rows


async def _copy(client: AgentClient, move: Move) -> Result:
    (result,) = await client.copy([move], {}, now_s=0.0)
    return result
