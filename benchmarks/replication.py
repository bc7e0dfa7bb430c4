"""Copies of KV between processes: exact, how fast, and what they do to others.

    .venv/bin/python -m benchmarks.replication [PART ...] [--json FILE] [--runs 5]

Parts, all of them unless some are named; both ends and what they are compared with run here:

exact         random KV over all transports and tiers, 1, 2, 4 ranks, blocks of 16 to 512 tokens
shm, tcp      1 GiB in blocks of two models' sizes, beside memcpy between two mappings, and iperf3
              over the same two network namespaces
verbs         the same with less, beside ib_read_bw: only where there are two RDMA devices, so in
              `btb lab rdma -- .venv/bin/python -m benchmarks.replication verbs`
fanout        one source to 4 targets with each link capped, chained and one by one
small         1, 16 and 256 small blocks: from decision to commit, and round trips one after another
interference  requests beside copies on one capped link
soak          copies, cancels and dead holders over TCP for `--soak-s` seconds; only if named

Namespaces need root and iproute2, the comparisons iperf3 or perftest. What can't be had is said.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: this folder would hide the package of the same name
    sys.exit("run it as: python -m benchmarks.replication")

import asyncio

from benchmarks.copying.exact import exact
from benchmarks.copying.fanout import fanout
from benchmarks.copying.interference import interference
from benchmarks.copying.namespaces import available
from benchmarks.copying.small import small
from benchmarks.copying.soak import soak
from benchmarks.copying.throughput import throughput

GIB = 1 << 30
DEFAULT = ("exact", "shm", "tcp", "fanout", "small", "interference")
NAMESPACED = ("tcp", "fanout", "interference")


def machine() -> str:
    """Say what this runs on."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    busy = os.getloadavg()[0]
    return (
        f"{names[0] if names else platform.machine()}, {os.cpu_count()} CPUs, Linux "
        f"{platform.release()}, Python {platform.python_version()}, load {busy:.1f} at the start"
    )


def parts(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Return what each part does."""
    size_bytes, runs, tokens = options.mib << 20, options.runs, (16, 512)
    return {
        "exact": lambda: asyncio.run(exact()),
        "shm": lambda: throughput("shm", size_bytes, runs, tokens),
        "tcp": lambda: throughput("tcp", size_bytes, runs, tokens),
        "verbs": lambda: (
            asyncio.run(exact(verbs=True))
            + throughput("verbs", min(size_bytes, GIB // 32), 3, (16,))
        ),
        "fanout": lambda: fanout(options.mbit, blocks=16, runs=min(runs, 3)),
        "small": lambda: [row for kind in ("shm", "tcp") for row in small(kind, copies=200)],
        "interference": lambda: interference(2 * options.mbit, seconds=10.0, rounds=runs),
        "soak": lambda: soak(options.soak_s),
    }


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = (*DEFAULT, "verbs", "soak")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(known))
    parser.add_argument("--runs", type=int, default=5, help="medians are over this many")
    parser.add_argument("--mib", type=int, default=1024, help="bytes of one copy, in MiB")
    parser.add_argument(
        "--mbit", type=int, default=50, help="cap of links for fanout, doubled for interference"
    )
    parser.add_argument("--soak-s", type=float, default=600.0, help="how long the soak takes")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    unknown = set(options.parts) - set(known)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    print(machine(), flush=True)
    found: dict[str, Any] = {"machine": machine()}
    for name in options.parts or DEFAULT:
        missing = available() if name in NAMESPACED else ""
        if missing:
            print(f"{name}: left out, {missing}", flush=True)
            continue
        found[name] = parts(options)[name]()
        show(name, found[name])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def show(name: str, found: Any) -> None:
    """Print what came of a part; of ways that are exact only how many there were."""
    rows = found if isinstance(found, list) else [found]
    tried = [row["exact"] for row in rows if "exact" in row]
    if tried:
        print(f"{name}: {sum(tried)} of {len(tried)} ways exact", flush=True)
    for row in rows:
        if row.get("exact"):
            continue
        cells = (
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
        )
        print(f"{name}: {', '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
