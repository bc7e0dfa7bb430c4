"""The two ends of a copy in processes of their own, in network namespaces where asked for.

python -m benchmarks.copying.ends agent '{...}'     an agent that holds blocks 1, 2, ...
python -m benchmarks.copying.ends call '{...}'      a function of a module of this folder
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from replication.agent import Agent, new_epoch
from replication.control.address import Address
from replication.layout import Layout
from replication.store import BlockPool
from replication.transports.choice import AutoTransport

ROOT = Path(__file__).parents[2]
TOKEN = b"a benchmark"
TENANT = "tenant"


@dataclass(frozen=True)
class End:
    """What an agent is started with; `filled` blocks of it hold random bytes, the rest is free."""

    layer_bytes: Sequence[Sequence[int]]
    slots: int
    filled: int
    kind: str = "tcp"
    host: str = "127.0.0.1"

    @property
    def layout(self) -> Layout:
        """Return how its memory is cut."""
        return Layout(self.slots, tuple(map(tuple, self.layer_bytes)))


def chain(blocks: int) -> tuple[int, ...]:
    """Return the hashes of the blocks that an agent holds."""
    return tuple(range(1, blocks + 1))


def put_random(pool: BlockPool, memories: Sequence[memoryview], blocks: int, seed: int) -> None:
    """Fill memory with random bytes and show the first blocks."""
    rng = np.random.default_rng(seed)
    for memory in memories:
        np.frombuffer(memory, np.uint8)[:] = np.frombuffer(rng.bytes(memory.nbytes), np.uint8)
    placement = pool.place(TENANT, chain(blocks), 0.0, 0.0, copied=False)
    for rank in pool.layout.ranks:
        pool.commit(placement, rank)


async def start(end: End) -> tuple[Agent, list[memoryview], AutoTransport]:
    """Start an agent in this process."""
    epoch = new_epoch()
    transport = await AutoTransport.start(TOKEN, kind=end.kind, host=end.host, epoch=epoch)
    memories = [transport.allocate(end.layout.region_bytes(rank)) for rank in end.layout.ranks]
    address = Address(end.host, 0)
    agent = Agent(address, TOKEN, end.layout, memories, transport, epoch=epoch)
    if end.filled:
        put_random(agent.pool, memories, end.filled, seed=1)
    return agent, memories, transport


async def serve(end: End) -> None:
    """Run an agent until the standard input ends."""
    agent, _, _ = await start(end)
    print(json.dumps({"address": str(agent.address)}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await agent.aclose()


@dataclass(frozen=True)
class AgentProcess:
    """An agent elsewhere."""

    address: str
    pid: int

    def cpu_s(self) -> float:
        """Return the processor seconds that it has taken so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
        ticks = sum(map(int, fields.split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")


def _command(namespace: str, what: str, options: dict[str, Any]) -> list[str]:
    inside = ["ip", "netns", "exec", namespace] if namespace else []
    module = [sys.executable, "-m", "benchmarks.copying.ends"]
    return [*inside, *module, what, json.dumps(options)]


@contextmanager
def agent_process(end: End, namespace: str = "") -> Iterator[AgentProcess]:
    """Start an agent in a process of its own, and end it."""
    with subprocess.Popen(
        _command(namespace, "agent", asdict(end)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first = process.stdout.readline()
        if not first:
            raise SystemExit("an agent did not start; its message is above")
        try:
            yield AgentProcess(json.loads(first)["address"], process.pid)
        finally:
            process.stdin.close()


@contextmanager
def background(
    module: str, function: str, arguments: dict[str, Any], namespace: str = ""
) -> Iterator[None]:
    """Run a coroutine function of this folder in a process of its own meanwhile."""
    options = {"module": module, "function": function, "arguments": arguments}
    with subprocess.Popen(_command(namespace, "call", options), cwd=ROOT) as process:
        try:
            yield
        finally:
            process.terminate()


def call(module: str, function: str, arguments: dict[str, Any], namespace: str = "") -> Any:
    """Return what a coroutine function of this folder returns, run in a process of its own."""
    options = {"module": module, "function": function, "arguments": arguments}
    done = subprocess.run(
        _command(namespace, "call", options), stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    if done.returncode:
        raise SystemExit(f"{function} failed with status {done.returncode}; see above")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Do what the command line says."""
    what, options = sys.argv[1], json.loads(sys.argv[2])
    if what == "agent":
        asyncio.run(serve(End(**options)))
        return
    function = getattr(
        import_module(f"benchmarks.copying.{options['module']}"), options["function"]
    )
    print(json.dumps(asyncio.run(function(**options["arguments"]))))


if __name__ == "__main__":
    main()
