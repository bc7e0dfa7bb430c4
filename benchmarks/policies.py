"""`btb` against what was asked of it: one table, each row with its target and whether it is met.

    .venv/bin/python -m benchmarks.policies [--only 1,4] [--quick] [--out DIR] [--json FILE]

1 and 2: the article's bursts of 60 s and of 1 s against all other policies and `clairvoyant`. 3:
bursts that can be foreseen, and a ramp, whose payback is plotted. 4: where nothing can be gained,
nothing may be lost. 5: decisions with 64 replicas. 6: the simulator's speed. On the causal engine
with attention, a shared fabric, and HBM shared with running KV. Forecasts start from nothing
(`--model`). Generated families are medians over seeds.

Finished cells stay in `--out` and are not run again while the code stays the same, so it can be
stopped, and run row by row. `--quick` takes two setups, two windows, two seeds and the beginning
of real logs. The article's windows, in `--shared`, are for scoring: nothing is chosen on them.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

if not __package__:  # a file run from its folder hides the package of the same name
    sys.exit("run benchmarks as modules, from the root: python -m benchmarks.NAME")

from benchmarks.policy_cells import Measured, simulate
from benchmarks.policy_plot import plot_payback
from benchmarks.policy_rows import Finding, Row, Scope, rows
from benchmarks.policy_speed import scale, simulator_speed
from btb.simulation.cells import Cell
from btb.simulation.compare import run_cells, stored_outcomes
from btb.simulation.machine import describe_machine
from btb.simulation.setups import ARTICLE_SETUPS

QUICK_SETUPS = ("70b_h100x4", "kimi_k2_h100x8")
ALL = ("1", "2", "3", "4", "5", "6")
OUT = Console()
PROGRESS = Console(stderr=True)


def measure(asked: Sequence[Row], scope: Scope, store: Path, jobs: int) -> Measured:
    """Return all that `asked` needs, run now or kept from an earlier run."""
    cells: dict[Cell, None] = {}
    for row in asked:
        for case in row.cases:
            for policy in row.policies:
                cells |= dict.fromkeys(case.cells(policy, scope.limit))
    done = stored_outcomes(cells, store) if store.is_dir() else {}
    left = sorted((cell for cell in cells if cell not in done), key=lambda one: one.window)
    with Progress(console=PROGRESS, disable=not PROGRESS.is_terminal) as progress:
        task = progress.add_task("simulating", total=len(cells), completed=len(done))
        done |= run_cells(
            left,
            partial(simulate, scope.shared, scope.limit),
            jobs=jobs,
            store=store,
            on_done=partial(progress.advance, task),
        )
    return Measured(scope.limit, done)


def show(findings: Sequence[Finding]) -> None:
    """Print a line a finding."""
    table = Table("row", "asked", "setup", "measured", "at most", "", "note")
    for one in findings:
        said = "[green]met[/]" if one.passed else "[red]missed[/]"
        cells = (f"{one.value:.3f}", f"{one.target:g}", said, one.note)
        table.add_row(one.row, one.asked, one.setup, *cells)
    OUT.print(table)


def parse() -> argparse.Namespace:
    """Return what was asked on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shared = Path(__file__).parents[1].parent / "shared"
    parser.add_argument("--only", default=",".join(ALL), metavar="ROW,...", help="rows to run")
    parser.add_argument("--quick", action="store_true", help="a part of everything")
    parser.add_argument("--setups", metavar="NAME,...", help="all six, or with --quick two")
    parser.add_argument("--shared", type=Path, default=shared, help="has reference/ and data/")
    parser.add_argument("--out", type=Path, default=Path("out/policies"))
    parser.add_argument("--json", type=Path, help="write the findings there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--model", default="river", help="what the decisions of row 5 start from")
    return parser.parse_args()


def main() -> int:
    """Run what was asked, print the table, and return 1 if a target was missed."""
    given = parse()
    usual = QUICK_SETUPS if given.quick else ARTICLE_SETUPS
    setups = tuple(given.setups.split(",")) if given.setups else tuple(usual)
    scope = Scope(
        shared=given.shared.resolve(),
        setups=setups,
        windows=(0, 7) if given.quick else tuple(range(15)),
        seeds=(0, 1) if given.quick else tuple(range(5)),
        tries=2 if given.quick else 8,
        limit=2_000 if given.quick else 0,
    )
    known, findings = rows(scope), []
    for number in given.only.split(","):
        for row in known.get(number, []):
            measured = measure([row], scope, given.out / "cells", given.jobs)
            findings += row.findings(measured)
            if row.name == "ramp":
                plot_payback(scope, row, measured, given.out / "payback.png")
        if number == "5":
            findings += scale(given.model, 5_000 if given.quick else 40_000)
        if number == "6":
            findings += simulator_speed(scope.shared, scope.setups, 1 if given.quick else 15)
    show(findings)
    OUT.print(describe_machine())
    if given.json:
        content = [{**asdict(one), "passed": one.passed} for one in findings]
        given.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return int(not all(one.passed for one in findings))


if __name__ == "__main__":
    sys.exit(main())
