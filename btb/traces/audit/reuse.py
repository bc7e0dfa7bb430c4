"""Share of prefill that an earlier request had already: what a cache could save at best."""

from dataclasses import dataclass, field
from math import inf

from forecasting.arrival import Arrival

AGES_S = (inf, 300.0, 60.0, 10.0)
"""How long ago a prefix may have been used last for it to count as still there."""

MAX_BLOCKS = 4_000_000
"""Distinct blocks remembered, about 400 MB; past this the older half is forgotten."""


@dataclass(slots=True)
class Reuse:
    """Tokens that were known, by how long ago they may have been used last.

    `requests` had at least one block known at any age. `blocks` are the distinct ones seen.
    `forgotten` says whether memory ran out, so that `inf` is a lower bound.
    """

    requests: int = 0
    blocks: int = 0
    forgotten: bool = False
    tokens: dict[float, int] = field(default_factory=lambda: dict.fromkeys(AGES_S, 0))


class ReuseCounter:
    """Finds the longest known prefix of each request.

    As a request touches all blocks before its deepest, a block was never touched later than the
    ones before it. So where a chain stops being known is a binary search.

    Examples
    --------
    Of the second request's two blocks the first is known, and was used 20 s before:

    >>> counter = ReuseCounter()
    >>> counter.add(Arrival(0.0, (1, 2), 512, input_tokens=1_024))
    >>> counter.add(Arrival(20.0, (1, 3), 512, input_tokens=1_024))
    >>> counter.found.tokens
    {inf: 512, 300.0: 512, 60.0: 512, 10.0: 0}
    """

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self.found = Reuse()
        self._max_blocks = max_blocks
        self._used_s: dict[int, float] = {}

    def add(self, arrival: Arrival) -> None:
        """Take in the next arrival of a trace."""
        chain, known = arrival.chain, len(arrival.chain)
        for age_s in AGES_S:
            known = self._known(chain, known, arrival.at_s - age_s)
            tokens = min(known * arrival.block_tokens, arrival.input_tokens)
            self.found.tokens[age_s] += tokens
            self.found.requests += age_s == inf and known > 0
        before = len(self._used_s)
        self._used_s.update(dict.fromkeys(chain, arrival.at_s))
        self.found.blocks += len(self._used_s) - before
        if len(self._used_s) > self._max_blocks:
            self._forget()

    def end_trace(self) -> None:
        """Forget everything: the next arrival belongs to another trace."""
        self._used_s.clear()

    def _known(self, chain: tuple[int, ...], most: int, since_s: float) -> int:
        """Return how many leading blocks, at most `most`, were used at `since_s` or later."""
        low, high = 0, most
        while low < high:
            middle = (low + high) // 2
            used_s = self._used_s.get(chain[middle])
            if used_s is not None and used_s >= since_s:
                low = middle + 1
            else:
                high = middle
        return low

    def _forget(self) -> None:
        self.found.forgotten = True
        times_s = sorted(self._used_s.values())
        since_s = times_s[len(times_s) // 2]
        self._used_s = {key: at_s for key, at_s in self._used_s.items() if at_s > since_s}
