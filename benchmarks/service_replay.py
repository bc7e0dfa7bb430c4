"""A live service under `btb replay` for a minute, then under `kill -9`.

    python -m benchmarks.service_replay [--rate 500] [--seconds 60] [--model river]

Prints arrivals a second, errors, latency of a posted batch, and the service's memory at the start
and at each third of the time; then kills a second service in the middle and shows that its log
reads clean and holds every arrival that was acknowledged. Exits with 1 if any of that fails.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import httpx

from btb.service.local import serve_process
from btb.traces import open_windows

BLOCKS = 256
"""Blocks of a prompt, of 512 tokens: the first half is shared by a burst, the rest is its own."""

KILL_AFTER_S = 5.0


def prompts(seed: int) -> Iterator[list[int]]:
    """Yield chains: bursts of up to 100 that share their first half, among lone prompts."""
    rng = Random(seed)
    hot: list[tuple[list[int], int]] = []
    while True:
        if rng.random() < 0.02 and len(hot) < 10:
            hot.append(([rng.getrandbits(64) for _ in range(BLOCKS // 2)], rng.randrange(2, 100)))
        shared: list[int] = []
        if hot and rng.random() < 0.7:
            index = rng.randrange(len(hot))
            shared, left = hot.pop(index)
            if left > 1:
                hot.append((shared, left - 1))
        yield [*shared, *(rng.getrandbits(64) for _ in range(BLOCKS - len(shared)))]


def write_trace(path: Path, count: int) -> None:
    """Write `count` requests as a Mooncake trace; `btb replay --rate` gives them their times."""
    with path.open("w", encoding="utf-8") as file:
        for number, chain in zip(range(count), prompts(seed=1), strict=False):
            row = {"timestamp": number, "input_length": 512 * BLOCKS, "output_length": 100}
            file.write(json.dumps({**row, "hash_ids": chain}) + "\n")


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def steady(folder: Path, rate: float, seconds: float, model: str) -> bool:
    """Replay at `rate` for `seconds`; return whether there was no error."""
    trace, result_path = folder / "trace.jsonl", folder / "result.json"
    write_trace(trace, int(rate * seconds))
    with serve_process("--model", model, "--log-dir", str(folder / "log")) as (service, url):
        print(f"memory at the start: {memory_mb(service.pid):.0f} MB")
        main = "from btb.cli import main; main()"
        options = ["--to", url, "--rate", str(rate), "--json", str(result_path)]
        command = [sys.executable, "-c", main, "replay", str(trace), *options]
        with subprocess.Popen(command) as client:
            start_s, third = monotonic(), 1
            while client.poll() is None:
                sleep(0.1)
                if third <= 3 and monotonic() - start_s >= third * seconds / 3:
                    after_s = third * seconds / 3
                    print(f"memory after {after_s:.0f} s: {memory_mb(service.pid):.0f} MB")
                    third += 1
        cpu_s = _counter(url, "process_cpu_seconds_total")
    result: dict[str, Any] = json.loads(result_path.read_text(encoding="utf-8"))
    print(
        f"{result['accepted']:,} arrivals accepted, {result['arrivals_s']:.0f} a second, errors: "
        f"{result['errors'] or 'none'}; batch p50 {1e3 * result['latency_p50_s']:.1f} ms, "
        f"p99 {1e3 * result['latency_p99_s']:.1f} ms; at most {result['lag_max_s']:.2f} s late; "
        f"{cpu_s:.0f} s of CPU in the service"
    )
    return not result["errors"] and bool(result["accepted"] == int(rate * seconds))


def _counter(url: str, name: str) -> float:
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    found = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(found[0].split()[1])


async def send_until_gone(url: str, kill: Any, taken: set[str]) -> None:
    """Send single arrivals from 16 clients, kill the service in the middle, note what was taken."""
    chains, start_s = prompts(seed=2), monotonic()

    async def sender(client: httpx.AsyncClient, name: int) -> None:
        number = 0
        while True:
            number += 1
            request_id = f"{name}-{number}"
            body = {"chain": next(chains), "block_tokens": 512, "request_id": request_id}
            try:
                answer = await client.post("/v1/arrivals", json=body)
            except httpx.TransportError:
                return
            if answer.status_code == 202:
                taken.add(request_id)
            if monotonic() - start_s >= KILL_AFTER_S:
                kill()

    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        await asyncio.gather(*(sender(client, name) for name in range(16)))


def killed(folder: Path, model: str) -> bool:
    """Kill a service in the middle; return whether its log holds all that was acknowledged."""
    options = ("--model", model, "--log-dir", str(folder))
    taken: set[str] = set()
    with serve_process(*options) as (service, url):
        asyncio.run(send_until_gone(url, service.kill, taken))
    with serve_process(*options) as (_, url):
        ready = httpx.get(f"{url}/readyz", trust_env=False).json()
    windows = open_windows([folder])
    ids = {arrival.request_id for window in windows for arrival in window}
    bad = sum(window.report.bad for window in windows)
    print(
        f"kill -9 after {KILL_AFTER_S:g} s: {len(taken):,} acknowledged, {len(ids):,} in the log, "
        f"{len(taken - ids)} missing, {bad} bad rows; after a restart "
        f"{ready['replayed_arrivals']:,} were learnt from"
    )
    return taken <= ids and bad == 0 and bool(ready["replayed_arrivals"] == len(ids))


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--model", default="river")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        fine = steady(Path(name), given.rate, given.seconds, given.model)
        fine = killed(Path(name) / "killed", given.model) and fine
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
