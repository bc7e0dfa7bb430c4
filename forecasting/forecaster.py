"""Arrivals in, forecasts out: how many more requests for a prefix will come, and how soon."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix
from forecasting.labels import LabelQueue
from forecasting.node import PrefixNode
from forecasting.prompts import Prompt
from forecasting.returning import LEAST_CHANCE, returns, with_return
from forecasting.silence import after_silence
from forecasting.tracker import PrefixTracker, Sample
from models.base import Learner
from models.counts import Counts

BOUNDARY_TOKENS = 2048
"""Depth from which prefixes are forecast unless said otherwise: 0.14 s of prefill of a 70B model on
four H100, so what is shared below it is hardly worth moving."""


LEAST_FOLLOWING = 2.0
"""Requests expected to go on from a new prompt within the longest horizon, from which it is a
prefix to tell of. Most go on once: a conversation's next turn."""


class Forecaster:
    """Forecasts every prefix with one model a horizon, and learns from what then came.

    Time never goes back: an arrival older than the newest time seen counts as arriving then, and
    a forecast for an older time is made for the newest.

    Parameters
    ----------
    models
        A model for each horizon in seconds. With none, forecasts have no counts.
    boundary_tokens
        Depth from which prefixes are forecast, in tokens.
    max_blocks
        Most blocks that are remembered.
    learn
        Whether the models learn from what comes, or stay as they are.

    Examples
    --------
    >>> forecaster = Forecaster({}, boundary_tokens=1024)
    >>> for second in range(3):
    ...     arrival = Arrival(float(second), (7, 8, second), block_tokens=512, input_tokens=1536)
    ...     forecaster.observe(arrival)
    >>> [(forecast.prefix, forecast.seen) for forecast in forecaster.forecast_path(arrival)]
    [(Prefix(key=8, blocks=2, tokens=1024), 3)]
    """

    def __init__(
        self,
        models: Mapping[float, Learner],
        *,
        boundary_tokens: int = BOUNDARY_TOKENS,
        max_blocks: int = 2_000_000,
        learn: bool = True,
    ) -> None:
        self._models = sorted(models.items(), key=lambda item: item[0])
        self._by_horizon = dict(models)
        self._longest_s = max(models, default=0.0)
        self._tracker = PrefixTracker(boundary_tokens, max_blocks)
        self._labels = LabelQueue(models if learn else ())
        self._newest: Sample | None = None

    def observe(self, arrival: Arrival) -> None:
        """Learn what is due by now, then count `arrival`."""
        self.advance(arrival.at_s)
        self._newest = self._tracker.observe(arrival)
        if self._newest is not None:
            self._labels.add(self._newest)

    def advance(self, now_s: float) -> None:
        """Learn what is due by `now_s`, though nothing arrives."""
        for label in self._labels.due(self._tracker.tick(now_s)):
            self._by_horizon[label.horizon_s].learn_one(label.sample.x, label.count)

    def forecast_path(self, arrival: Arrival) -> list[Forecast]:
        """Return forecasts for at most four prefixes of an arrival just observed, shallow to deep.

        They are the one at the boundary; of those below that came before, the one with most
        arrivals (halved every 60 s) times tokens; the deepest of them; and all of its prompt,
        which may be new, where what followed others like it says that more will go on from it.
        Empty where the chain is shorter than the boundary or nothing is known of it.
        """
        boundary = self._tracker.boundary_blocks(arrival.block_tokens)
        path = [node for node in self._tracker.path(arrival) if node.end >= boundary]
        if not path:
            return []
        now_s = max(arrival.at_s, self._tracker.now_s)
        found = [self._forecast(node, now_s) for node in _worth_telling(path, now_s)]
        following = self._announced(found[-1].prefix.blocks, now_s)
        return [*found, following] if following is not None else found

    def forecast(self, key: int, now_s: float) -> Forecast | None:
        """Return the forecast for the prefix that the block `key` is part of, None if unknown.

        Where the block is the last whole one of a prompt of the last minute, for that prompt.
        """
        node = self._tracker.find(key)
        if node is None:
            return None
        now_s = max(now_s, self._tracker.now_s)
        prompt = self._tracker.prompts.find(key)
        following = self._following(prompt, now_s) if prompt is not None else None
        return following or self._forecast(node, now_s)

    def hottest(self, now_s: float, top: int) -> list[Forecast]:
        """Return forecasts for the `top` prefixes asked for most of late, hottest first."""
        now_s = max(now_s, self._tracker.now_s)
        return [self._forecast(node, now_s) for node in self._tracker.hottest(now_s, top)]

    def due(self, now_s: float, within_s: float) -> list[Forecast]:
        """Return forecasts for prefixes whose next burst may begin within `within_s`.

        Before its first request: an earlier burst is over. Those with a probability of at least
        `LEAST_CHANCE` to begin by then, the likeliest first. Looks at what is due, not at all.
        """
        now_s = max(now_s, self._tracker.now_s)
        found = self._tracker.due.due(now_s, within_s)
        likely = [
            (back.chance, node)
            for node in found
            for back in returns(node.stats, now_s, (within_s,))
            if back.chance >= LEAST_CHANCE
        ]
        likely.sort(key=lambda one: -one[0])
        return [self._forecast(node, now_s) for _, node in likely]

    def chain(self, key: int) -> tuple[int, ...]:
        """Return the whole chain up to the block `key`; empty if it is unknown.

        >>> forecaster = Forecaster({}, boundary_tokens=512)
        >>> forecaster.observe(Arrival(0.0, (7, 8, 9), block_tokens=512, input_tokens=1536))
        >>> forecaster.chain(8)
        (7, 8)
        """
        node = self._tracker.find(key)
        if node is None:
            return ()
        runs = [node.blocks[: node.blocks.index(key) + 1]]
        while node.parent is not None:
            node = node.parent
            runs.append(node.blocks)
        return tuple(block for run in reversed(runs) for block in run)

    def tallies(self) -> dict[str, int]:
        """Return how many arrivals and samples were taken, and what was not, by name."""
        tracker = self._tracker
        return {
            "arrivals": tracker.arrivals,
            "arrivals_late": tracker.late,
            "arrivals_without_prefix": tracker.short,
            "chains_broken": tracker.tree.broken,
            "chains_cut": tracker.tree.cut,
            "blocks": len(tracker.tree),
            "nodes_pruned": tracker.tree.pruned,
            "schedules": len(tracker.due),
            "schedules_dropped": tracker.due.dropped,
            "samples_waiting": len(self._labels),
            "samples_dropped": self._labels.dropped,
        }

    def _forecast(self, node: PrefixNode, at_s: float) -> Forecast:
        prefix, stats = Prefix(node.key, node.end, node.tokens), node.stats
        told = self._told(node)
        if at_s <= stats.last_s or not told:
            return Forecast(prefix, at_s, stats.arrivals, _rising(told))
        horizons_s = [horizon_s for horizon_s, _ in told]
        counts = after_silence(told, at_s - stats.last_s)
        back = returns(stats, at_s, horizons_s)
        if back:
            counts = [with_return(*both) for both in zip(counts, back, strict=True)]
        chances = {h: one.chance for h, one in zip(horizons_s, back, strict=False)}
        rising = _rising(zip(horizons_s, counts, strict=True))
        return Forecast(prefix, at_s, stats.arrivals, rising, chances)

    def _announced(self, below_blocks: int, now_s: float) -> Forecast | None:
        """Return the forecast for the latest prompt, if it is new and many will go on from it."""
        prompt, prompts = self._tracker.prompt, self._tracker.prompts
        if prompt is None or prompt.blocks <= below_blocks:
            return None
        if not self._models or prompts.likely(prompt) < LEAST_FOLLOWING:
            return None
        following = self._following(prompt, now_s)
        if following is None or following.mean(self._longest_s) < LEAST_FOLLOWING:
            return None
        return following

    def _following(self, prompt: Prompt, now_s: float) -> Forecast | None:
        """Return what will go on from all of a prompt, None where nothing tells of it."""
        horizons_s = [horizon_s for horizon_s, _ in self._models]
        found = self._tracker.prompts.to_come(prompt, now_s, horizons_s)
        if not found:
            return None
        counts = (with_return(Counts(0.0), back) for back in found)
        rising = _rising(zip(horizons_s, counts, strict=True))
        prefix = Prefix(prompt.key, prompt.blocks, prompt.tokens)
        chances = {h: back.chance for h, back in zip(horizons_s, found, strict=True)}
        return Forecast(prefix, now_s, prompt.count + 1, rising, chances)

    def _told(self, node: PrefixNode) -> list[tuple[float, Counts]]:
        """Return what the models say as of the last arrival of `node`: they learn at arrivals."""
        if not self._models:
            return []
        newest, last_s = self._newest, node.stats.last_s
        if newest is not None and newest.node is node and newest.at_s == last_s:
            x = newest.x
        else:
            x = self._tracker.features(node, last_s)
        return [(horizon_s, model.predict_one(x)) for horizon_s, model in self._models]


def _rising(told: Iterable[tuple[float, Counts]]) -> dict[float, Counts]:
    """Return the counts by horizon, so that a longer one never has a smaller mean."""
    counts: dict[float, Counts] = {}
    least = 0.0
    for horizon_s, count in told:
        counts[horizon_s] = count if count.mean >= least else replace(count, mean=least)
        least = counts[horizon_s].mean
    return counts


def _worth_telling(path: list[PrefixNode], now_s: float) -> list[PrefixNode]:
    """Return the first node, the shared one that would save most, and the deepest shared one."""
    shared = [node for node in path if node.stats.arrivals >= 2]
    chosen = [path[0]]
    if shared:
        chosen.append(max(shared, key=lambda node: node.stats.counts(now_s)[3] * node.tokens))
        chosen.append(shared[-1])
    return list(dict.fromkeys(chosen))
