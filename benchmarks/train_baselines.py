"""What the learners are worth: one progressive pass each over three kinds of traffic.

    .venv/bin/python -m benchmarks.train_baselines [--trace FILE_OR_FOLDER]...

Without --trace: kv-cache-tester v8 on a common clock and Mooncake's conversations, from
`../shared/data`, and a generated day of `mixed` traffic. All learners see the same features and
learn from the same labels, when these are known; the EWMA is the best of four in hindsight. Takes
about ten minutes. `combined` is fitted to the labels so far each time they have doubled.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from btb.traces import ReaderOptions, Trace, open_windows
from btb.traces.generate import make_windows, write_windows
from btb.traces.parameters import make_parameters
from btb.training import Pass, run_pass
from forecasting.forecaster import BOUNDARY_TOKENS
from models import make_models

DATA = Path(__file__).parents[1].parent / "shared" / "data"
KVCT, MOONCAKE = "kvct_v8_local_sessions.compact.jsonl.zst", "mooncake_conversation_trace.jsonl.zst"
DAY_S = 86_400
SPREAD_S = 3_600.0
SEED = 1
LEARNERS = ("river", "combined")


def main() -> None:
    """Run the passes and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, action="append", default=[])
    given = parser.parse_args().trace
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    options = ReaderOptions(start_spread_s=SPREAD_S, seed=SEED)
    for path in given or [path for path in (DATA / KVCT, DATA / MOONCAKE) if path.exists()]:
        measure(path.name, open_windows([path], options=options))
    if not given:
        with generated_day() as windows:
            measure(f"generated day of mixed traffic, seed {SEED}", windows)


@contextmanager
def generated_day() -> Iterator[list[Trace]]:
    """Write a day of `mixed` traffic to a folder that goes away again."""
    with tempfile.TemporaryDirectory() as folder:
        parameters = make_parameters("mixed", {"duration_s": str(DAY_S)})
        write_windows(Path(folder), make_windows("mixed", parameters, seed=SEED, windows=1), {})
        yield open_windows([Path(folder)])


def measure(title: str, windows: list[Trace]) -> None:
    """Run one pass and print how each learner did."""
    began_s = time.process_time()
    outcome = run_pass(
        windows, {name: make_models(name) for name in LEARNERS}, boundary_tokens=BOUNDARY_TOKENS
    )
    spent_s = time.process_time() - began_s
    print(f"\n{title}: {outcome.samples:,} forecasts a horizon, {spent_s:.0f} s of CPU time")
    print(
        "| horizon | more came | best EWMA | deviance | Hawkes | river | combined | below EWMA "
        "| 2nd half |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for horizon_s in outcome.unlabelled:
        print(line(outcome, horizon_s))


def line(outcome: Pass, horizon_s: float) -> str:
    """Return a horizon's row of the table."""
    best = outcome.best_baseline(horizon_s)
    names = (best, "hawkes", *LEARNERS)
    deviances = [f"{outcome.scores(name, horizon_s).deviance:.4g}" for name in names]
    whole, late = (
        "too few"
        if outcome.too_few(horizon_s)
        else f"{100.0 * outcome.skill('combined', horizon_s, since):.1f} %"
        for since in (0.0, 0.5)
    )
    cells = [
        f"{horizon_s:g} s",
        f"{outcome.scores('river', horizon_s).came:.3g}",
        best.removeprefix("ewma "),
        *deviances,
        whole,
        late,
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
