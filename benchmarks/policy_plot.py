"""When `btb` has paid back on a ramp: the TTFT saved so far, against `cache_aware`."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.policy_cells import Measured
from benchmarks.policy_rows import Row, Scope

mpl.use("Agg")


def plot_payback(scope: Scope, row: Row, measured: Measured, path: Path) -> None:
    """Draw a line a setup for the first seed: seconds of TTFT saved up to each time."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for case in row.cases:
        traffic = scope.traffic(case)[0]
        arrived_s = [arrival.at_s for arrival in traffic.arrivals]
        theirs_s = measured.ttft_s(case, "cache_aware")[0]
        saved_s = np.cumsum(theirs_s - measured.ttft_s(case, "btb")[0])
        axes.plot(arrived_s, saved_s, label=case.setup)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_xlabel("time in the window, s")
    axes.set_ylabel("TTFT saved so far, s")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
