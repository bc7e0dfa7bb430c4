"""How many arrivals a second the default learners take on one core, and what they remember."""

import random
import time
import tracemalloc
from statistics import median, quantiles

from benchmarks.forecasting_speed import prompts
from benchmarks.quality.row import Row, at_least, at_most
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from models import DEFAULT, make_models

WARM_UP, EACH, RUNS = 20_000, 4_000, 5
DISTINCT = 2_000_000
MAX_BLOCKS = 1_000_000


def rows() -> list[Row]:
    """Return the rows of show 6: chains of 256 blocks, 10,000 live prefixes, all horizons."""
    forecaster = Forecaster(make_models(DEFAULT))
    arrivals = prompts(random.Random(1))
    rates, each_s = [], []
    for number in range(WARM_UP + RUNS * EACH):
        arrival = next(arrivals)
        if number >= WARM_UP and (number - WARM_UP) % EACH == 0:
            began_s = time.process_time()
        before_s = time.perf_counter()
        forecaster.observe(arrival)
        forecaster.forecast_path(arrival)
        if number >= WARM_UP:
            each_s.append(time.perf_counter() - before_s)
            if (number - WARM_UP) % EACH == EACH - 1:
                rates.append(EACH / (time.process_time() - began_s))
    p99_ms = 1e3 * quantiles(each_s, n=100)[-1]
    what = f"{DEFAULT}, observe + forecast, 256-block chains"
    return [
        at_least("6", f"{what}: arrivals per CPU second, median of {RUNS}", median(rates), 3000.0),
        at_most("6", f"{what}: p99 by the clock on the wall", p99_ms, 2.0, "ms"),
        *memory(),
    ]


def memory() -> list[Row]:
    """Return bytes a tracked prefix, and the growth from the first to the second million."""
    forecaster = Forecaster({}, max_blocks=MAX_BLOCKS)
    tracemalloc.start()
    sizes = []
    for number in range(DISTINCT):
        chain = tuple(range(number * 8, number * 8 + 8))
        forecaster.observe(Arrival(number * 0.01, chain, block_tokens=256, input_tokens=2048))
        if number + 1 in (100_000, DISTINCT // 2, DISTINCT):
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    growth = 100.0 * (sizes[2] / sizes[1] - 1.0)
    return [
        Row("6", "memory of a tracked prefix of 8 blocks", sizes[0] / 100_000, "bytes"),
        at_most("6", "growth from 1 to 2 million distinct prefixes", growth, 1.0, "%"),
    ]
