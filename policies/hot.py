"""Prefixes that more requests are expected for, and what one request's compute adds to their wait.

It matters only where replicas serve in order of arrival; by priority they would overtake it.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import Chain, ClusterView
from policies.cost import Way, ways

MAX_HOT = 1_000
"""Prefixes whose latest forecast is kept; the longest unseen is forgotten past this."""

WATCHED = 4
"""Prefixes, those expected most often, that a request's compute is weighed against."""


@dataclass(frozen=True, slots=True)
class _Hot:
    """A prefix that `rate_rps` more requests a second are expected for, as forecast at `at_s`."""

    chain: Chain
    tokens: int
    rate_rps: float
    at_s: float


class HotPrefixes:
    """The latest forecast for each prefix, for `fresh_s` seconds."""

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._hot: OrderedDict[int, _Hot] = OrderedDict()

    def note(self, arrival: Arrival, forecast: Forecast, rate_rps: float) -> None:
        """Remember the forecast for a prefix of `arrival`."""
        prefix = forecast.prefix
        chain = arrival.chain[: prefix.blocks]
        self._hot[prefix.key] = _Hot(chain, prefix.tokens, rate_rps, arrival.at_s)
        self._hot.move_to_end(prefix.key)
        if len(self._hot) > MAX_HOT:
            self._hot.popitem(last=False)

    def added_s(self, found: list[Way], arrival: Arrival, cluster: ClusterView) -> list[float]:
        """Return the seconds that each of the ways of `arrival` adds to the waits of others."""
        added_s = [0.0] * len(found)
        for hot in self._in_the_way(arrival, max(way.work_s for way in found)):
            waits_s = _waits(hot, arrival, cluster)
            for way in found:
                added_s[way.replica] += hot.rate_rps * _added(waits_s, way)
        return added_s

    def _in_the_way(self, arrival: Arrival, work_s: float) -> list[_Hot]:
        """Return the other prefixes that are expected most, if `work_s` could be in their way."""
        in_the_way = [
            hot
            for hot in self._fresh(arrival.at_s)
            if hot.rate_rps * work_s > 0.1 and not _begins_with(arrival.chain, hot.chain)
        ]
        in_the_way.sort(key=lambda hot: -hot.rate_rps)
        return in_the_way[:WATCHED]

    def _fresh(self, now_s: float) -> Iterator[_Hot]:
        for hot in reversed(self._hot.values()):
            if now_s - hot.at_s > self._fresh_s:
                return
            yield hot


def _begins_with(chain: Chain, other: Chain) -> bool:
    return len(chain) >= len(other) and chain[len(other) - 1] == other[-1]


def _waits(hot: _Hot, arrival: Arrival, cluster: ClusterView) -> list[float]:
    """Return how long the next request for `hot` would wait on each replica for its prefix."""
    following = Arrival(
        at_s=arrival.at_s,
        chain=hot.chain,
        block_tokens=arrival.block_tokens,
        input_tokens=hot.tokens + arrival.block_tokens,
    )
    return [
        way.ttft_s - way.work_s if way.blocks else way.ttft_s for way in ways(following, cluster)
    ]


def _added(waits_s: list[float], way: Way) -> float:
    """Return the seconds that `way` adds to the waits of one arrival a second, summed.

    The next request for a prefix goes where its wait is shortest; only if that is where `way`
    computes does it have to wait longer, or go elsewhere.
    """
    before_s = min(waits_s)
    if waits_s[way.replica] > before_s:
        return 0.0
    after_s = max(before_s, way.ttft_s)
    for replica, wait_s in enumerate(waits_s):
        if replica != way.replica and wait_s < after_s:
            after_s = wait_s
    return (after_s * after_s - before_s * before_s) / 2
