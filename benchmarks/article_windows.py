"""The first policies on the article's windows and on Mooncake's hour, both engines, six setups.

    .venv/bin/python -m benchmarks.article_windows [--out DIR] [--jobs 2]

Runs `btb compare` on `../shared/reference/windows.json` (60 s and 1 s bursts) and on the Mooncake
conversation trace, writes its reports under DIR, and prints mean and p95 TTFT of each policy, and
of `btb` against `early_rdma` and `cache_aware` in the same run. The `ordered_` policies are those
of the same name with btb's queue order, so what is due to order shows apart; the prototype engine
serves in order of arrival, whatever the order. The windows are for scoring: no constant was chosen
on them.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

BTB = Path(sys.executable).with_name("btb")
SHARED = Path(__file__).parents[1].parent / "shared"
MOONCAKE = SHARED / "data" / "mooncake_conversation_trace.jsonl.zst"
POLICIES = (
    "cache_aware",
    "early_rdma",
    "ordered_least_load",
    "ordered_cache_aware",
    "ordered_early_rdma",
    "btb",
)


def compare(trace: Path, engine: str, out: Path, jobs: int) -> list[dict[str, Any]]:
    """Return the rows that `btb compare` gives for `trace`; cells that are done are not redone."""
    report = out / f"{trace.stem}-{engine}"
    figures = out / f"{trace.stem}-{engine}.json"
    chosen = [word for name in POLICIES for word in ("--policy", name)]
    command = [str(BTB), "compare", str(trace), "--setup", "all", "--engine", engine, *chosen]
    command += ["--jobs", str(jobs), "--report", str(report), "--json", str(figures)]
    subprocess.run([*command, "--no-mlflow"], check=True, stdout=subprocess.DEVNULL)
    rows: list[dict[str, Any]] = json.loads(figures.read_text())["results"]
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print a line a setup: mean and p95 of each policy, and how btb's mean compares."""
    print(f"\n{title}: TTFT mean / p95 in s; btb's mean against early_rdma's and cache_aware's")
    print(f"{'setup':16}" + "".join(f"{name:>20}" for name in POLICIES) + f"{'against':>16}")
    for setup in dict.fromkeys(row["setup"] for row in rows):
        here = {row["policy"]: row for row in rows if row["setup"] == setup}
        mean = {name: here[name]["ttft_mean_s"] for name in POLICIES}
        cells = (f"{mean[name]:.4g} / {here[name]['ttft_p95_s']:.4g}" for name in POLICIES)
        against = (mean["btb"] / mean[name] - 1 for name in ("early_rdma", "cache_aware"))
        print(f"{setup:16}" + "".join(f"{cell:>20}" for cell in cells), end="")
        print("".join(f"{share:>+8.1%}" for share in against), flush=True)
    moved = {
        name: sum(row["moved_bytes"] for row in rows if row["policy"] == name) / 1e12
        for name in ("early_rdma", "btb")
    }
    print("moved, TB: " + ", ".join(f"{name} {size:.1f}" for name, size in moved.items()))


def main() -> None:
    """Run all of it; about a quarter of an hour on two cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/article_windows"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    for name in ("b60", "b1"):
        windows = options.out / name
        command = [str(BTB), "generate", "article", "--set", name, "--out", str(windows)]
        command += ["--windows", str(SHARED / "reference" / "windows.json"), "--force"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for engine in ("causal", "prototype"):
            rows = compare(windows, engine, options.out, options.jobs)
            show(f"{name}, {engine} engine", rows)
    for engine in ("causal", "prototype"):
        rows = compare(MOONCAKE, engine, options.out, options.jobs)
        show(f"Mooncake conversation, {engine} engine", rows)


if __name__ == "__main__":
    main()
