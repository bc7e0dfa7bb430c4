"""What it is worth to get ahead of bursts that can be foreseen, on generated traffic.

    .venv/bin/python -m benchmarks.anticipation [--seeds 1,2,3,4,5] [--setups all] [--json FILE]

Families `recurring` and `agents` on the causal engine: of each burst, the mean TTFT of the first
5 % of its requests (at least one), from the fourth burst of a job or template on. `cache_aware`
and `btb` with and without looking ahead (`lead_s=0`) and with `speculative_prefill`; families
`ramp` and `ordinary`, over all requests. Memory: as in `CausalParameters`; *scarce*, a tenth of
the HBM for KV and 20 GB of RAM a replica, with a disk below; and *none below*, the same without
the disk, so that what is evicted is soon nowhere.

The bound is the own work of these requests if all KV that anybody has ever computed were at hand,
where they run, and nobody queued. No policy gets below it without computing a request's own tokens
before it comes. Medians over seeds.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from statistics import fmean, median

import numpy as np

from btb.controller import Controller
from btb.simulation.bounds import alone_s
from btb.simulation.causal import simulate_causal
from btb.simulation.machine import describe_machine
from btb.simulation.parameters import CausalParameters
from btb.simulation.plan import policy_from
from btb.simulation.setups import ARTICLE_SETUPS, SETUPS, Setup
from btb.traces.generate import make_windows
from btb.traces.parameters import make_parameters
from btb.traces.workloads.base import Window
from forecasting.forecaster import Forecaster
from models import make_models

MODEL = "river"
FIRST_SHARE, FIRST_BURST = 0.05, 4
POLICIES = ("cache_aware", "ordered_cache_aware", "btb:lead_s=0", "btb")
SPECULATIVE = "btb:speculative_prefill=true"


@dataclass(frozen=True, slots=True)
class Memory:
    """How much KV a replica can keep: share of the setup's HBM, RAM and disk."""

    name: str
    hbm_share: float = 1.0
    ram_bytes: float = 512e9
    disk_bytes: float = 0.0

    def of(self, setup: Setup) -> Setup:
        """Return `setup` with so much room for KV in HBM."""
        room_bytes = setup.kv_capacity_bytes * self.hbm_share
        hbm_bytes = (setup.weights_bytes + room_bytes) / setup.gpus_per_replica
        return replace(setup, gpu=replace(setup.gpu, hbm_bytes=hbm_bytes))


PLENTY = Memory("plenty")
SCARCE = Memory("scarce", hbm_share=0.1, ram_bytes=20e9, disk_bytes=4e12)
NONE_BELOW = Memory("none below", hbm_share=0.1, ram_bytes=20e9)


@dataclass(frozen=True, slots=True)
class Row:
    """Medians over seeds, in seconds and GB; `first` and `bound` are of bursts' first requests."""

    family: str
    memory: str
    setup: str
    policy: str
    first_s: float
    bound_s: float
    mean_s: float
    moved_gb: float
    unused_gb: float
    speculated_s: float
    unused_speculated_share: float


def first_requests(window: Window) -> list[int]:
    """Return the numbers of the first 5 % of each burst, from the fourth of its kind on."""
    seen: Counter[int] = Counter()
    found = []
    for burst in window.bursts:
        blocks = burst.prefix_tokens // 256
        mine = [
            number
            for number, arrival in enumerate(window.arrivals)
            if burst.start_s <= arrival.at_s <= burst.end_s
            and len(arrival.chain) >= blocks
            and arrival.chain[blocks - 1] == burst.prefix_key
        ]
        kind = window.arrivals[mine[0]].chain[0]  # its job, or its parent's template
        seen[kind] += 1
        if seen[kind] >= FIRST_BURST:
            found += mine[: ceil(FIRST_SHARE * len(mine))]
    return found


def measure(family: str, memory: Memory, name: str, policy: str, windows: Sequence[Window]) -> Row:
    """Run `policy` on each window, a seed each, and return the medians."""
    setup = memory.of(SETUPS[name])
    parameters = CausalParameters(ram_bytes=memory.ram_bytes, disk_bytes=memory.disk_bytes)
    firsts, bounds, runs = [], [], []
    for window in windows:
        made = policy_from(policy, 42)
        controller = Controller(made, Forecaster(make_models(MODEL, made.horizons_s)))
        run = simulate_causal(setup, controller, window.arrivals, parameters)
        runs.append(run)
        numbers = first_requests(window) if family in ("recurring", "agents") else []
        if numbers:
            firsts.append(float(run.ttft_s[numbers].mean()))
            bounds.append(float(alone_s(setup, window.arrivals)[numbers].mean()))
    speculated = sum(run.speculated_tokens for run in runs)
    return Row(
        family=family,
        memory=memory.name,
        setup=name,
        policy=policy,
        first_s=median(firsts) if firsts else float("nan"),
        bound_s=median(bounds) if bounds else float("nan"),
        mean_s=median(float(np.mean(run.ttft_s)) for run in runs),
        moved_gb=median(run.moved_bytes / 1e9 for run in runs),
        unused_gb=median(run.wasted_bytes / 1e9 for run in runs),
        speculated_s=fmean(run.speculated_s for run in runs),
        unused_speculated_share=sum(run.unused_speculated_tokens for run in runs)
        / max(1, speculated),
    )


def show(row: Row, base: Row) -> None:
    """Print one line of the table, and how it compares with `cache_aware`."""
    cells = [row.family, row.memory, row.setup, row.policy]
    if row.first_s == row.first_s:
        cells += [f"{1e3 * row.first_s:.1f}", f"{row.first_s / base.first_s - 1:+.0%}"]
        cells += [f"{1e3 * row.bound_s:.1f}"]
    else:
        cells += ["", "", ""]
    cells += [f"{1e3 * row.mean_s:.1f}", f"{row.mean_s / base.mean_s - 1:+.1%}"]
    cells += [f"{row.moved_gb:.0f}", f"{row.unused_gb:.1f}"]
    cells += [f"{row.speculated_s:.1f}", f"{row.unused_speculated_share:.0%}"]
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Print a line a family, memory, setup and policy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--setups", default="all", help="names with commas between, or all")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    setups = options.setups.split(",")
    if options.setups == "all":
        setups = [name for name in ARTICLE_SETUPS if name != "dense1t_b300x4"]
    print(describe_machine())
    print(
        "| family | memory | setup | policy | first ms | against | bound ms | mean ms | against "
        "| moved GB | unused GB | ahead s | unused |\n|" + "---|" * 13
    )
    rows = []
    for family, memories in (
        ("recurring", (PLENTY, SCARCE, NONE_BELOW)),
        ("agents", (PLENTY,)),
        ("ramp", (PLENTY,)),
        ("ordinary", (PLENTY,)),
    ):
        windows = [
            window
            for seed in seeds
            for window in make_windows(family, make_parameters(family, {}), seed=seed, windows=1)
        ]
        for memory in memories:
            policies = POLICIES + ((SPECULATIVE,) if family == "recurring" else ())
            for name in setups:
                here = [measure(family, memory, name, policy, windows) for policy in policies]
                for row in here:
                    show(row, here[0])
                rows += here
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
