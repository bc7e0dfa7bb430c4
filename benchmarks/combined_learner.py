"""What combining the learners is worth: each of them and the combination, in one pass a trace.

    .venv/bin/python benchmarks/combined_learner.py [--seeds 2,3]

Families `recurring`, `agents`, `fanout` and `mixed`, generated (two hours, `fanout` two windows),
and, where they are there, kv-cache-tester v8 and Mooncake's conversations from `../shared/data`.
Every learner starts from nothing. The combination's rates were set on seed 1 of the four families
and on kv-cache-tester, so the other seeds are what it is measured on. Takes about two minutes.
"""

import argparse
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from btb.traces import ReaderOptions, Trace, open_windows
from btb.traces.generate import make_windows, write_windows
from btb.traces.parameters import make_parameters
from btb.training import Pass, run_pass
from forecasting.forecaster import BOUNDARY_TOKENS
from models import make_models

DATA = Path(__file__).parents[1].parent / "shared" / "data"
LOGS = ("kvct_v8_local_sessions.compact.jsonl.zst", "mooncake_conversation_trace.jsonl.zst")
TWO_HOURS = {"duration_s": "7200"}
FAMILIES = {"recurring": TWO_HOURS, "agents": TWO_HOURS, "fanout": {}, "mixed": TWO_HOURS}
LEARNERS = ("recurrence", "river", "combined")


def main() -> None:
    """Print a row a trace and horizon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="2,3")
    seeds = [int(seed) for seed in parser.parse_args().seeds.split(",")]
    print(f"{platform.platform()}, Python {platform.python_version()}")
    print(
        "| trace | horizon | best EWMA | Hawkes | recurrence | river | combined | against river |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for family, settings in FAMILIES.items():
        for seed in seeds:
            with generated(family, settings, seed) as windows:
                measure(f"{family} {seed}", windows)
    options = ReaderOptions(start_spread_s=3600.0, seed=1)
    for path in (DATA / name for name in LOGS if (DATA / name).exists()):
        measure(path.name.split("_")[0], open_windows([path], options=options))


@contextmanager
def generated(family: str, settings: dict[str, str], seed: int) -> Iterator[list[Trace]]:
    """Write windows of `family` to a folder that goes away again."""
    with tempfile.TemporaryDirectory() as folder:
        parameters = make_parameters(family, settings)
        count = 1 if settings else 2
        write_windows(Path(folder), make_windows(family, parameters, seed=seed, windows=count), {})
        yield open_windows([Path(folder)])


def measure(title: str, windows: Sequence[Trace]) -> None:
    """Run one pass and print how each learner did."""
    learners = {name: make_models(name) for name in LEARNERS}
    outcome = run_pass(windows, learners, boundary_tokens=BOUNDARY_TOKENS)
    for horizon_s in outcome.unlabelled:
        print(row(title, outcome, horizon_s), flush=True)


def row(title: str, outcome: Pass, horizon_s: float) -> str:
    """Return a row of the table: Poisson deviances, and the combination's against river's."""
    names = (outcome.best_baseline(horizon_s), "hawkes", *LEARNERS)
    deviances = [outcome.scores(name, horizon_s).deviance for name in names]
    change = 100.0 * (deviances[-1] / deviances[-2] - 1.0)
    against = "too few" if outcome.too_few(horizon_s) else f"{change:+.1f} %"
    cells = [title, f"{horizon_s:g} s", *(f"{one:.4g}" for one in deviances), against]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
