"""Forecasts that are always right, of one that has seen all arrivals of a window. For bounds."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from btb.simulation.runs import cut_into_runs
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from forecasting.forecaster import BOUNDARY_TOKENS, Forecaster
from models.base import HORIZONS_S
from models.counts import Counts

OVER_S = 10.0
"""Silence after which the next request for a prefix begins a new burst."""


class Oracle(Forecaster):
    """A `Forecaster` that counts what will come in place of estimating it.

    `arrivals` are those of the window, in order, and are observed in that order. Prefixes are those
    at which the traffic of the whole window branches, so the first request of a burst has a
    forecast for the prefix that others will share.

    Examples
    --------
    >>> window = [Arrival(float(at_s), (1, 2, 10 + at_s), 1024, 3072) for at_s in range(8)]
    >>> oracle = Oracle(window)
    >>> oracle.observe(window[0])
    >>> forecast = oracle.forecast_path(window[0])[-1]
    >>> forecast.prefix.blocks, forecast.mean(5.0), forecast.mean(15.0)
    (2, 5.0, 7.0)
    """

    def __init__(self, arrivals: Sequence[Arrival]) -> None:
        super().__init__({})
        self._arrivals = arrivals
        self._runs = cut_into_runs(arrivals)
        count = len(self._runs.blocks)
        self._indices: list[list[int]] = [[] for _ in range(count)]
        self._times_s: list[list[float]] = [[] for _ in range(count)]
        for index, (arrival, path) in enumerate(zip(arrivals, self._runs.paths, strict=True)):
            for run in path:
                self._indices[run].append(index)
                self._times_s[run].append(arrival.at_s)
        self._observed = 0
        self._starts = self._burst_starts()

    def _burst_starts(self) -> list[tuple[float, int]]:
        """Return when bursts of prefixes that came before begin, and at which arrival."""
        starts = []
        for index, arrival in enumerate(self._arrivals):
            run = next(iter(self._shared(index)), -1)
            if run < 0:
                continue
            place = bisect_left(self._indices[run], index)
            if place and arrival.at_s - self._times_s[run][place - 1] > OVER_S:
                starts.append((arrival.at_s, index))
        return starts

    def _deep(self, index: int) -> list[int]:
        """Return the runs of an arrival that end at the boundary or below."""
        tokens, starts, blocks = (
            self._arrivals[index].block_tokens,
            self._runs.starts,
            self._runs.blocks,
        )
        return [
            run
            for run in self._runs.paths[index]
            if (starts[run] + blocks[run]) * tokens >= BOUNDARY_TOKENS
        ]

    def _shared(self, index: int) -> list[int]:
        """Return those that another arrival has too, shallow to deep."""
        return [run for run in self._deep(index) if len(self._indices[run]) > 1]

    def observe(self, arrival: Arrival) -> None:
        """Go on to the next arrival."""
        self._observed += 1

    def advance(self, now_s: float) -> None:
        """Do nothing: there is nothing to learn."""

    def coming(self, arrival: Arrival, within_s: float) -> int:
        """Return how many more requests will share the prefix of `arrival`, observed last."""
        shared = self._shared(self._observed - 1)
        return self._count(shared[-1], arrival.at_s, within_s) if shared else 0

    def forecast_path(self, arrival: Arrival) -> list[Forecast]:
        """Return exact forecasts for up to three prefixes of the arrival observed last.

        As a `Forecaster` does: the first at the boundary; of those that are shared the one that
        most tokens will be asked for; and the deepest shared one.
        """
        index = self._observed - 1
        shared = self._shared(index)
        chosen = self._deep(index)[:1]

        def asked_for(run: int) -> int:
            depth = self._runs.starts[run] + self._runs.blocks[run]
            return depth * self._count(run, arrival.at_s, max(HORIZONS_S))

        if shared:
            chosen += [max(shared, key=asked_for), shared[-1]]
        return [self._exact(run, index, arrival.at_s) for run in dict.fromkeys(chosen)]

    def due(self, now_s: float, within_s: float) -> list[Forecast]:
        """Return exact forecasts for prefixes whose next burst begins by then, soonest first."""
        low = bisect_right(self._starts, (now_s, len(self._arrivals)))
        high = bisect_right(self._starts, (now_s + within_s, len(self._arrivals)))
        return [
            self._exact(self._shared(index)[0], index, now_s, begins_s=at_s)
            for at_s, index in self._starts[low:high]
        ]

    def chain(self, key: int) -> tuple[int, ...]:
        """Return the whole chain up to the block `key`; empty if it never comes."""
        index = self._runs.owner.get(key)
        if index is None:
            return ()
        chain = self._arrivals[index].chain
        return chain[: chain.index(key) + 1]

    def _exact(self, run: int, index: int, at_s: float, begins_s: float | None = None) -> Forecast:
        arrival = self._arrivals[index]
        blocks = self._runs.starts[run] + self._runs.blocks[run]
        prefix = Prefix(arrival.chain[blocks - 1], blocks, blocks * arrival.block_tokens)
        counts = {h: Counts(float(self._count(run, at_s, h))) for h in HORIZONS_S}
        returns = {}
        if begins_s is not None:
            returns = {h: float(begins_s <= at_s + h) for h in HORIZONS_S}
        seen = bisect_left(self._indices[run], self._observed)
        return Forecast(prefix, at_s, seen, counts, returns)

    def _count(self, run: int, at_s: float, within_s: float) -> int:
        """Return the requests for `run` that are still to come by then."""
        return bisect_right(self._times_s[run], at_s + within_s) - bisect_left(
            self._indices[run], self._observed
        )
