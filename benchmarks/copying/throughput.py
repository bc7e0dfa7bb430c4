"""One GiB in blocks of real models' sizes, beside what memcpy, iperf3 and perftest do."""

import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.copying.ends import TENANT, TOKEN, AgentProcess, End, agent_process, call, chain
from benchmarks.copying.ends import start as start_end
from benchmarks.copying.models import MIB, MODELS, blocks_of, layer_bytes
from benchmarks.copying.namespaces import star
from replication.control.address import Address
from replication.control.remote import AgentHolder
from replication.executor import Executor
from replication.plan import Move
from replication.target import Target

GIB = 1 << 30
CONNECTS = 20
"""How often a client is tried: under emulation its server takes seconds to start."""
PEERS = {"shm": "memcpy", "tcp": "iperf3", "verbs": "ib_read_bw"}


def throughput(kind: str, size_bytes: int, runs: int, tokens: tuple[int, ...]) -> list[Any]:
    """Measure one transport; return a row for each model and block size."""
    rows = []
    for model in MODELS:
        for block_tokens in tokens:
            layers = layer_bytes(model, block_tokens)
            blocks = blocks_of(size_bytes, layers)
            row = {"transport": kind, "model": model, "block_tokens": block_tokens}
            rows.append({**row, **_measure(kind, End(layers, blocks, blocks, kind), runs)})
    return rows


def _measure(kind: str, end: End, runs: int) -> dict[str, Any]:
    arguments = {"layer_bytes": end.layer_bytes, "blocks": end.slots, "kind": kind, "runs": runs}
    if kind != "tcp":
        with agent_process(end) as source:
            return _outcome({**arguments, "host": end.host}, source, "")
    with star(["a", "b"]) as ends:
        (there, address), (here, mine) = ends["a"], ends["b"]
        with agent_process(End(end.layer_bytes, end.slots, end.filled, kind, address), there) as a:
            quiet = subprocess.DEVNULL  # it complains of being ended
            server = ["ip", "netns", "exec", there, "iperf3", "-s", "-p", "5201"]
            with subprocess.Popen(server, stdout=quiet, stderr=quiet) as peer:
                try:
                    return _outcome({**arguments, "host": mine}, a, here)
                finally:
                    peer.terminate()


def _outcome(arguments: dict[str, Any], source: AgentProcess, namespace: str) -> dict[str, Any]:
    where = {**arguments, "source": source.address, "pid": source.pid}
    found: dict[str, Any] = call("throughput", "target", where, namespace)
    return found


async def target(
    layer_bytes: list[list[int]],
    blocks: int,
    kind: str,
    host: str,
    runs: int,
    source: str,
    pid: int,
) -> dict[str, Any]:
    """Copy `runs` times from an agent, and have the peer do as much after each; medians."""
    end = End(layer_bytes, blocks, 0, kind, host)
    agent, memories, transport = await start_end(end)
    for memory in memories:  # pages are there before it counts
        memory[::4096] = bytes(-(-memory.nbytes // 4096))
    holder = AgentHolder(Address.parse(source), TOKEN)
    executor = Executor(
        {"here": Target(agent.pool, transport)}, {"source": holder}, clock=time.monotonic
    )
    size_bytes = blocks * end.layout.block_bytes
    move = Move(TENANT, chain(blocks), ("source",), "here", size_bytes, float("inf"), 1.0, "")
    reference = await _reference(kind, holder, memories[0], size_bytes, source)
    there = AgentProcess(source, pid)
    ours, theirs, cpu_s = [], [], []
    for number in range(runs + 1):
        before_s, began_s = there.cpu_s() + time.process_time(), time.monotonic()
        (result,) = await executor.run([move])
        took_s = time.monotonic() - began_s
        if result.error is not None:
            raise result.error
        spent_s = there.cpu_s() + time.process_time() - before_s
        for block in chain(blocks):
            agent.pool.reclaim(TENANT, block)
        peer_bytes_s = await reference()
        if number:  # the first one connects, and works digests out
            ours.append(size_bytes / took_s)
            theirs.append(peer_bytes_s)
            cpu_s.append(spent_s * GIB / size_bytes)
    holder.close()
    await agent.aclose()
    return {
        "peer": PEERS[kind],
        "gib": size_bytes / GIB,
        "ours_gib_s": statistics.median(ours) / GIB,
        "peer_gib_s": statistics.median(theirs) / GIB,
        "share": statistics.median(one / other for one, other in zip(ours, theirs, strict=True)),
        "cpu_s_per_gib": statistics.median(cpu_s),
    }


Reference = Callable[[], Awaitable[float]]


async def _reference(
    kind: str, holder: AgentHolder, memory: memoryview, size_bytes: int, source: str
) -> Reference:
    if kind == "shm":
        return await _memcpy(holder, memory)
    if kind == "tcp":
        return _iperf3(Address.parse(source).host, size_bytes)
    return _ib_read_bw(size_bytes)


async def _memcpy(holder: AgentHolder, memory: memoryview) -> Reference:
    """Copy the source's whole mapping into ours by one call."""
    offer = await holder.lease(TENANT, (1,), 5.0)
    await holder.release(offer.lease)
    key = json.loads(offer.regions[0].key)["ways"]["shm"][1]
    pid, descriptor, _ = key.split(":")
    file = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR)
    mapped = mmap.mmap(file, memory.nbytes)
    os.close(file)
    there = (ctypes.c_char * memory.nbytes).from_buffer(mapped)
    here = (ctypes.c_char * memory.nbytes).from_buffer(memory)

    async def copy() -> float:
        began_s = time.monotonic()
        ctypes.memmove(here, there, memory.nbytes)
        return memory.nbytes / (time.monotonic() - began_s)

    await copy()
    return copy


def _iperf3(host: str, size_bytes: int) -> Reference:
    """Have the source's end send as much, over as many streams as are under way in a copy."""

    async def copy() -> float:
        command = ["iperf3", "-c", host, "-p", "5201", "-R", "-n", str(size_bytes), "-P", "4", "-J"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8

    return copy


def _ib_read_bw(size_bytes: int) -> Reference:
    """Read as much with messages of 1 MiB from the first device to the last."""
    devices = sorted(os.listdir("/sys/class/infiniband"))

    async def copy() -> float:
        options = ["-x", "1", "-s", str(MIB), "-n", str(max(5, size_bytes // MIB)), "-F"]
        command = ["ib_read_bw", "-d", devices[-1], *options, "10.77.0.1"]
        with subprocess.Popen(
            ["ib_read_bw", "-d", devices[0], *options], stdout=subprocess.DEVNULL
        ) as server:
            try:
                done = _once_it_listens(command)
            finally:
                server.terminate()
        (line,) = [one for one in done.splitlines() if one.split()[:1] == [str(MIB)]]
        return float(line.split()[3]) * MIB

    return copy


def _once_it_listens(command: list[str]) -> str:
    """Return what a client puts out that fails for as long as its server starts."""
    for _ in range(CONNECTS):
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.returncode:
            return done.stdout
        time.sleep(1.0)
    sys.exit(f"{command[0]} failed {CONNECTS} times: {done.stderr or done.stdout}")
