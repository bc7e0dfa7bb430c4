"""How well forecasts hold between arrivals: what is said of a prefix that has fallen silent.

    .venv/bin/python -m benchmarks.quiet_forecasts [--trace FILE]...

Without --trace: four generated hours of `mixed` traffic and, where it is there, kv-cache-tester v8
from `../shared/data`. When 1, 2, 5, 10, 20 or 40 s have gone by since an arrival of a prefix with
two or more (every second one, by chance), a forecast is made, and held against what came. Takes
about a minute.
"""

import argparse
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import NamedTuple

from btb.traces import ReaderOptions, open_windows
from btb.traces.generate import make_windows
from btb.traces.parameters import make_parameters
from forecasting.arrival import Arrival
from forecasting.forecaster import BOUNDARY_TOKENS, Forecaster
from forecasting.quality import Quality
from models import make_models
from models.base import HORIZONS_S
from models.counts import Counts

KVCT = Path(__file__).parents[1].parent / "shared/data/kvct_v8_local_sessions.compact.jsonl.zst"
SILENCES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)
MODEL = "river"


class Check(NamedTuple):
    """A forecast to be made at `at_s`, unless the prefix has more than `seen` arrivals by then."""

    at_s: float
    key: int
    seen: int
    silent_s: float


def main() -> None:
    """Run all traffic and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trace", type=Path, action="append", default=[])
    parser.add_argument("--model", default=MODEL)
    given = parser.parse_args()
    options = ReaderOptions(start_spread_s=3600.0, seed=1)
    for path in given.trace or [path for path in (KVCT,) if path.exists()]:
        (window,) = open_windows([path], options=options)
        measure(path.name, window, given.model)
    if not given.trace:
        parameters = make_parameters("mixed", {"duration_s": "14400"})
        (made,) = make_windows("mixed", parameters, seed=1, windows=1)
        measure("four generated hours of mixed traffic", made.arrivals, given.model)


def measure(title: str, arrivals: Iterable[Arrival], model: str) -> None:
    """Print, by silence and horizon, what was forecast on average and what came."""
    took = list(arrivals)
    times_s = boundary_times(took)
    scores = {(s, h): Quality() for s in SILENCES_S for h in HORIZONS_S}
    for silent_s, key, at_s, counts in forecasts(took, model):
        own_s = times_s[key]
        after = bisect_right(own_s, at_s)
        for horizon_s, count in counts.items():
            if at_s + horizon_s < took[-1].at_s:
                came = bisect_right(own_s, at_s + horizon_s) - after
                scores[silent_s, horizon_s].add(count, came)
    print(f"\n{title}, {model}: mean forecast / came (Poisson deviance)")
    print("| silent | " + " | ".join(f"{h:g} s" for h in HORIZONS_S) + " |")
    print("|---|" + "---|" * len(HORIZONS_S))
    for silent_s in SILENCES_S:
        cells = []
        for horizon_s in HORIZONS_S:
            found = scores[silent_s, horizon_s].scores()
            cells.append(
                f"{found.forecast:.3g} / {found.came:.3g} ({found.deviance:.3g})" if found else ""
            )
        print(f"| {silent_s:g} s | " + " | ".join(cells) + " |")


def boundary_times(arrivals: Iterable[Arrival]) -> dict[int, list[float]]:
    """Return the times of arrivals by the key of their prefix at the boundary."""
    found: dict[int, list[float]] = defaultdict(list)
    for arrival in arrivals:
        blocks = max(1, BOUNDARY_TOKENS // arrival.block_tokens)
        if len(arrival.chain) >= blocks:
            found[arrival.chain[blocks - 1]].append(arrival.at_s)
    return found


def forecasts(
    arrivals: list[Arrival], model: str
) -> Iterator[tuple[float, int, float, Mapping[float, Counts]]]:
    """Yield each forecast made between arrivals: silence, prefix, time, and counts by horizon."""
    forecaster = Forecaster(make_models(model))
    rng = Random(1)
    waiting: list[Check] = []
    seen: dict[int, int] = defaultdict(int)
    for arrival in arrivals:
        while waiting and waiting[0].at_s < arrival.at_s:
            check = heappop(waiting)
            if seen[check.key] == check.seen:
                forecaster.advance(check.at_s)
                told = forecaster.forecast(check.key, check.at_s)
                if told is not None:
                    yield check.silent_s, check.key, check.at_s, told.counts
        forecaster.observe(arrival)
        blocks = max(1, BOUNDARY_TOKENS // arrival.block_tokens)
        if len(arrival.chain) < blocks:
            continue
        key = arrival.chain[blocks - 1]
        seen[key] += 1
        if seen[key] >= 2 and rng.random() < 0.5:
            for silent_s in SILENCES_S:
                heappush(waiting, Check(arrival.at_s + silent_s, key, seen[key], silent_s))


if __name__ == "__main__":
    main()
