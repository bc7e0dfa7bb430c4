"""How many arrivals a second the forecasting takes on one core, and how long one takes.

Run it as `python -m benchmarks.forecasting_speed`; it takes about a minute and 1 GB of memory.
Rates are per second of CPU time, so that a busy machine disturbs them little; the time of a single
arrival is by the clock on the wall. Models are trivial: theirs is not the time to be measured.
"""

import os
import platform
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from forecasting.prefix import PrefixTree
from models.base import HORIZONS_S, Features, decayed_count
from models.counts import Counts

RUNS = 5
LAST_MINUTE = decayed_count(60.0)


class Persistent:
    """Forecasts that as many come as came in the last minute or so."""

    def predict_one(self, x: Features) -> Counts:
        """Return the decayed count, as a Poisson distribution."""
        return Counts(x[LAST_MINUTE])

    def learn_one(self, x: Features, count: int) -> None:
        """Learn nothing."""


def main() -> None:
    """Run both measurements and print them."""
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    measure_forecaster()
    measure_tree()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak_mib:,.0f} MiB")


def measure_forecaster() -> None:
    """Observe and forecast 256-block chains: 192 of one of 10,000 prefixes, 64 of their own."""
    forecaster = Forecaster({horizon_s: Persistent() for horizon_s in HORIZONS_S})

    def take(arrival: Arrival) -> None:
        forecaster.observe(arrival)
        forecaster.forecast_path(arrival)

    arrivals = prompts(random.Random(1))
    for _ in range(40_000):  # at 500 a second: past the longest horizon
        take(next(arrivals))
    report(
        "observe + forecast_path, 256-block chains, 10,000 prefixes",
        take,
        [[next(arrivals) for _ in range(5_000)] for _ in range(RUNS)],
    )
    print(f"  {forecaster.tallies()}")


def prompts(rng: random.Random) -> Iterator[Arrival]:
    """Yield arrivals, 500 a second, of 256 blocks of 16 tokens."""
    prefixes = [tuple(rng.getrandbits(63) for _ in range(192)) for _ in range(10_000)]
    at_s = 0.0
    while True:
        at_s += rng.expovariate(500.0)
        popular = int(len(prefixes) * rng.random() ** 3)
        own = tuple(rng.getrandbits(63) for _ in range(64))
        yield Arrival(at_s, prefixes[popular] + own, block_tokens=16, input_tokens=4096)


def measure_tree() -> None:
    """Match and insert 4,096-block chains in a tree of a million nodes."""
    rng = random.Random(2)
    trunks = [tuple(rng.getrandbits(63) for _ in range(4_095)) for _ in range(200)]
    tree = PrefixTree(max_blocks=200 * 4_095 + 1_000_000)

    def request(trunk: tuple[int, ...]) -> Arrival:
        return Arrival(0.0, (*trunk, rng.getrandbits(63)), block_tokens=16, input_tokens=65_536)

    def take(arrival: Arrival) -> None:
        tree.observe(arrival, 0.0, boundary_blocks=128)

    for _ in range(5_000):
        for trunk in trunks:
            take(request(trunk))
    nodes = sum(1 for _ in tree.nodes())
    runs = [[request(rng.choice(trunks)) for _ in range(2_000)] for _ in range(RUNS)]
    report(f"tree match + insert, 4,096-block chains, {nodes:,} nodes", take, runs)
    known = [[arrival for arrival in run for _ in range(2)] for run in runs]
    report("  the same chains again, twice: nothing to insert", take, known)


def report(what: str, take: Callable[[Arrival], None], runs: Sequence[Sequence[Arrival]]) -> None:
    """Feed each of `runs` to `take`; print the median rate and the slowest hundredth."""
    rates, each_us = [], []
    for run in runs:
        began_s = time.process_time()
        for arrival in run:
            before_s = time.perf_counter()
            take(arrival)
            each_us.append((time.perf_counter() - before_s) * 1e6)
        rates.append(len(run) / (time.process_time() - began_s))
    p99_us = statistics.quantiles(each_us, n=100)[-1]
    print(
        f"{what}: {statistics.median(rates):,.0f} arrivals/s "
        f"(of {len(rates)} runs, {min(rates):,.0f} to {max(rates):,.0f}), "
        f"p50 {statistics.median(each_us):.1f} us, p99 {p99_us:.1f} us, max {max(each_us):.0f} us"
    )


if __name__ == "__main__":
    main()
