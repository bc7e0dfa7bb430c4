"""Whether forecasts are worth acting on: every figure of docs/forecasting.md, beside its target.

    .venv/bin/python -m benchmarks.forecast_quality [--only 3,4] [--seeds 11,12,13] [--json FILE]

1  real traces, fitted to the first half and scored on the second
2  jobs that return: how many bursts are foreseen, and how often in vain
3  agents that fan out: told by the parent alone
4  bursts among decoys: told apart at the third arrival
5  traffic that changes in the middle
6  arrivals a second on one core, and memory

Settings were chosen on other seeds; features and weights on kv-cache-tester, its scored half among
it. Real traces are looked for in --data. All rows are also kept in MLflow (--no-mlflow: not). Takes
about 20 minutes.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.quality import decoys, drift, held_out, parents, returning, speed
from benchmarks.quality.row import Row
from btb import tracking

DATA = Path(__file__).parents[1].parent / "shared" / "data"
SEEDS = "11,12,13"


def main() -> None:
    """Run what was asked for, and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="1,2,3,4,5,6", help="numbers of rows")
    parser.add_argument("--seeds", default=SEEDS, help="of generated traffic")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with the public traces")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    parser.add_argument("--no-mlflow", action="store_true", help="keep nothing in MLflow")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    shows: Mapping[str, Callable[[], list[Row]]] = {
        "1": lambda: held_out.rows(given.data, seeds[0]),
        "2": lambda: returning.rows(seeds),
        "3": lambda: parents.rows(seeds),
        "4": lambda: decoys.rows(seeds),
        "5": lambda: drift.rows(seeds),
        "6": speed.rows,
    }
    rows: list[Row] = []
    for number in given.only.split(","):
        if number not in shows:
            sys.exit(f"--only: {number!r} is none of {', '.join(shows)}")
        print(f"rows {number} ...", file=sys.stderr, flush=True)
        rows += shows[number]()
    show(rows)
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    if not given.no_mlflow:
        keep(rows, {"seeds": given.seeds, "only": given.only})


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table("", "what", "measured", "target", "met", title=machine(), title_justify="left")
    for row in rows:
        met = {None: "", True: "yes", False: "NO"}[row.met]
        table.add_row(row.show, row.what, f"{row.value:.4g} {row.unit}", row.target, met)
    Console(width=160).print(table)


def machine() -> str:
    """Return what it ran on."""
    return f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores"


def keep(rows: list[Row], settings: Mapping[str, str]) -> None:
    """Log all rows as metrics of one run."""
    params = {**settings, "machine": machine()}
    with tracking.experiment("btb forecast quality").run("all rows", params=params) as run:
        run.metrics({_name(row): row.value for row in rows})


def _name(row: Row) -> str:
    allowed = (one if one.isalnum() or one in "_-. /" else "_" for one in row.what)
    return f"{row.show} {''.join(allowed)}"[:240]


if __name__ == "__main__":
    main()
