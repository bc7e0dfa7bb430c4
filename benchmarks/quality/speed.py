"""How many arrivals a second the default learners take on one core, and what they remember."""

import random
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from statistics import median, quantiles

from benchmarks.forecasting_speed import prompts
from benchmarks.quality.row import Row, at_least, at_most
from forecasting.arrival import Arrival
from forecasting.forecaster import BOUNDARY_TOKENS, Forecaster
from forecasting.labels import LabelQueue
from forecasting.tracker import PrefixTracker
from models import DEFAULT, make_models
from models.base import CountModel, Features, Fitted

STRETCH = 40_000
"""Arrivals before the first that is timed, and those whose labels trees are fitted to: 80 s of
traffic, so labels of all horizons are being learnt."""

LABELS = 8_000
"""Labels of each horizon that trees are fitted to, at most."""

EACH, RUNS = 4_000, 5
DISTINCT = 2_000_000
MAX_BLOCKS = 1_000_000


def rows() -> list[Row]:
    """Return the rows of show 6: chains of 256 blocks, 10,000 live prefixes, all horizons."""
    found = speed(make_models(DEFAULT), f"{DEFAULT}, no trees")
    fitted = make_models(DEFAULT)
    fit(fitted)
    return [*found, *speed(fitted, f"{DEFAULT} with trees"), *memory()]


def fit(models: Mapping[float, CountModel]) -> None:
    """Fit models to labels of a first stretch of the traffic that is timed."""
    tracker, queue = PrefixTracker(BOUNDARY_TOKENS), LabelQueue(models, 2 * LABELS)
    logs: dict[float, tuple[list[Features], list[int]]] = {h: ([], []) for h in models}
    for arrival in islice(prompts(random.Random(1)), STRETCH):
        for label in queue.due(arrival.at_s):
            xs, counts = logs[label.horizon_s]
            if len(xs) < LABELS:
                xs.append(label.sample.x)
                counts.append(label.count)
        sample = tracker.observe(arrival)
        if sample is not None:
            queue.add(sample)
    for horizon_s, model in models.items():
        assert isinstance(model, Fitted)
        model.fit(*logs[horizon_s], seed=1)


def speed(models: Mapping[float, CountModel], what: str) -> list[Row]:
    """Return how many arrivals are observed and forecast each second, and how long one takes."""
    forecaster, arrivals = Forecaster(models), prompts(random.Random(1))
    rates: list[float] = []
    each_s: list[float] = []
    for _ in _times(forecaster, islice(arrivals, STRETCH)):
        pass
    for _ in range(RUNS):
        run = list(islice(arrivals, EACH))
        began_s = time.process_time()
        each_s += _times(forecaster, run)
        rates.append(EACH / (time.process_time() - began_s))
    p99_ms = 1e3 * quantiles(each_s, n=100)[-1]
    text = f"{what}, observe + forecast, 256-block chains"
    return [
        at_least("6", f"{text}: arrivals per CPU second, median of {RUNS}", median(rates), 3000.0),
        at_most("6", f"{text}: p99 by the clock on the wall", p99_ms, 2.0, "ms"),
    ]


def _times(forecaster: Forecaster, arrivals: Iterable[Arrival]) -> Iterator[float]:
    for arrival in arrivals:
        before_s = time.perf_counter()
        forecaster.observe(arrival)
        forecaster.forecast_path(arrival)
        yield time.perf_counter() - before_s


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
