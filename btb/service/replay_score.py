"""Forecasts of a running service against what was then sent to it."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from btb.service.hashes import parse_hash

Chain = tuple[int, ...]


@dataclass(slots=True)
class Score:
    """Forecasts for one horizon, summed: what they said, what came, and how far apart they were.

    `inside` counts those where what came lay in the 80 % interval.
    """

    forecasts: int = 0
    mean: float = 0.0
    came: int = 0
    error: float = 0.0
    inside: int = 0


@dataclass(frozen=True, slots=True)
class _Open:
    """A forecast whose horizon isn't over."""

    block: int
    until_s: float
    mean: float
    low: int
    high: int
    seen: int


class Scores:
    """Holds each forecast until its horizon is over, then compares it with what was sent.

    Times are the sender's. A request that was on its way when a forecast was made counts as come
    before, though the service may not have counted it: at high rates that is a little unfair to
    the forecast.

    Examples
    --------
    >>> scores = Scores()
    >>> horizon = {"horizon_s": 5.0, "mean": 2.0, "low": 1, "high": 3}
    >>> scores.add([{"prefix": "0x07", "horizons": [horizon]}], now_s=0.0)
    >>> scores.sent((7, 8), now_s=1.0)
    >>> scores.sent((9, 8), now_s=2.0)
    >>> scores.settle(now_s=5.5)
    >>> scores.by_horizon
    {5.0: Score(forecasts=1, mean=2.0, came=1, error=1.0, inside=1)}
    """

    def __init__(self) -> None:
        self.by_horizon: dict[float, Score] = {}
        self._open: dict[float, deque[_Open]] = {}
        self._seen: dict[int, int] = {}

    @property
    def unfinished(self) -> int:
        """Forecasts whose horizon isn't over."""
        return sum(map(len, self._open.values()))

    def add(self, forecasts: Sequence[Mapping[str, Any]], now_s: float) -> None:
        """Take in what `GET /v1/forecasts` said at `now_s`, its list of forecasts."""
        for forecast in forecasts:
            block = parse_hash(forecast["prefix"])
            if block is None:
                continue
            seen = self._seen.setdefault(block, 0)
            for one in forecast["horizons"]:
                horizon_s = one["horizon_s"]
                self.by_horizon.setdefault(horizon_s, Score())
                self._open.setdefault(horizon_s, deque()).append(
                    _Open(block, now_s + horizon_s, one["mean"], one["low"], one["high"], seen)
                )

    def sent(self, chain: Chain, now_s: float) -> None:
        """Count a request that is sent at `now_s`."""
        self.settle(now_s)
        for block in self._seen.keys() & chain:
            self._seen[block] += 1

    def settle(self, now_s: float) -> None:
        """Compare the forecasts whose horizon was over before `now_s`."""
        settled = False
        for horizon_s, waiting in self._open.items():
            while waiting and waiting[0].until_s < now_s:
                self._score(self.by_horizon[horizon_s], waiting.popleft())
                settled = True
        if settled:
            asked = {one.block for waiting in self._open.values() for one in waiting}
            self._seen = {block: self._seen[block] for block in asked}

    def _score(self, score: Score, forecast: _Open) -> None:
        came = self._seen[forecast.block] - forecast.seen
        score.forecasts += 1
        score.mean += forecast.mean
        score.came += came
        score.error += abs(came - forecast.mean)
        score.inside += forecast.low <= came <= forecast.high
