"""What it costs a service that its model may be replaced, and that a challenger goes along.

Run it as `python -m benchmarks.shadow_cost`; it takes about a minute. Rates are per second of CPU
time: observe and forecast, 256-block chains of 2,000 prefixes, the river model, 500 arrivals a
second of trace time fed as fast as they are taken. Then the time that a new model is loaded for,
aside, and the time that the event loop is held up when it takes its place.
"""

import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from btb.config import ModelSettings
from btb.service.keeper import ModelKeeper
from forecasting.arrival import Arrival
from forecasting.forecaster import BOUNDARY_TOKENS, Forecaster
from models import make_models
from models.checkpoint import Checkpoint, save

MODEL = "river"
RUNS, ARRIVALS = 3, 2_000
SWAPS = 20
WARM_UP = 35_000
"""Arrivals at first: past the longest horizon, so that every one brings labels, too."""


def main() -> None:
    """Measure and print."""
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    measure("models that stay", Forecaster(make_models(MODEL)))
    measure("models that may be replaced", ModelKeeper(MODEL, ModelSettings()).make_forecaster())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        save(Checkpoint(MODEL, make_models(MODEL), BOUNDARY_TOKENS), path)
        for share in (1e9, ModelSettings().shadow_share):
            settings = ModelSettings(challenger=str(path), shadow_share=share)
            keeper = ModelKeeper(MODEL, settings)
            words = "all samples" if share > 1.0 else f"at most {share:.0%} of the time"
            measure(f"with a challenger, {words}", keeper.make_forecaster())
            assert keeper.stage.shadow is not None
            print(f"  in the end it takes one sample in {keeper.stage.shadow.stride}")
        measure_swap(path)


def measure(what: str, forecaster: Forecaster) -> None:
    """Print how many arrivals a second are taken."""
    arrivals = prompts(random.Random(1))
    for _ in range(WARM_UP):
        forecaster.observe(next(arrivals))
    rates = []
    for _ in range(RUNS):
        run = [next(arrivals) for _ in range(ARRIVALS)]
        began_s = time.process_time()
        for arrival in run:
            forecaster.observe(arrival)
            forecaster.forecast_path(arrival)
        rates.append(ARRIVALS / (time.process_time() - began_s))
    print(
        f"{what}: {statistics.median(rates):,.0f} arrivals/s "
        f"(of {RUNS} runs, {min(rates):,.0f} to {max(rates):,.0f})"
    )


def measure_swap(path: Path) -> None:
    """Print how long a checkpoint takes to be loaded, and to take its place."""
    keeper = ModelKeeper(str(path), ModelSettings())
    loads_s, swaps_s = [], []
    for _ in range(SWAPS):
        save(Checkpoint(MODEL, make_models(MODEL), BOUNDARY_TOKENS), path)
        began_s = time.perf_counter()
        fetched = keeper.fetch()
        loads_s.append(time.perf_counter() - began_s)
        assert fetched.taken
        began_s = time.perf_counter()
        keeper.take(fetched)
        swaps_s.append(time.perf_counter() - began_s)
    print(
        f"a new model: loaded aside in {1e3 * statistics.median(loads_s):.1f} ms, takes its place "
        f"in {1e6 * statistics.median(swaps_s):.0f} us (medians of {SWAPS})"
    )


def prompts(rng: random.Random) -> Iterator[Arrival]:
    """Yield arrivals, 500 a second, of 256 blocks of 16 tokens."""
    prefixes = [tuple(rng.getrandbits(63) for _ in range(192)) for _ in range(2_000)]
    at_s = 0.0
    while True:
        at_s += rng.expovariate(500.0)
        popular = int(len(prefixes) * rng.random() ** 3)
        own = tuple(rng.getrandbits(63) for _ in range(64))
        yield Arrival(at_s, prefixes[popular] + own, block_tokens=16, input_tokens=4096)


if __name__ == "__main__":
    main()
