"""Which prefixes are held out from a policy, and whether the others are served sooner for it."""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from math import exp, inf, log, sqrt

from forecasting.arrival import Arrival
from forecasting.forecast import Prefix
from policies.base import Chain
from policies.order import boundary_key

PERIOD_S = 3600.0
"""How long a prefix stays on one side. A system prompt that all requests share is not held out for
ever, then."""

VISIT_S = 120.0
"""Requests for one prefix within this time are one visit: they share queues and KV, so they are
one observation and not many."""

LEAST_REQUESTS = 3
"""Smaller visits are not counted: nothing could be copied for them in time."""

MAX_WEIGHT = 50
"""Requests that one visit counts for at most, so that no single burst decides."""

LEAST_VISITS = 30.0
"""Visits, less where their weights are unequal, that a side needs before an interval is given."""

ALPHA = 0.05
"""How often the interval is wrong, over all the times that it is looked at."""

TIGHT_AT = 200.0
"""Visits at which the interval is tightest for its `ALPHA`."""

MAX_OPEN = 100_000
"""Visits, and requests without an answer, that are remembered; the oldest is left out past this."""


@dataclass(slots=True)
class Side:
    """Sums over the visits on one side, each of weight w and mean y: enough for mean and error."""

    visits: int = 0
    w: float = 0.0
    ww: float = 0.0
    wy: float = 0.0
    wwy: float = 0.0
    wwyy: float = 0.0

    def add(self, weight: float, value: float) -> None:
        """Take in one visit."""
        self.visits += 1
        self.w += weight
        self.ww += weight * weight
        self.wy += weight * value
        self.wwy += weight * weight * value
        self.wwyy += weight * weight * value * value

    @property
    def mean(self) -> float:
        """The weighted mean."""
        return self.wy / self.w

    @property
    def count(self) -> float:
        """As many visits of equal weight would tell as much."""
        return self.w * self.w / self.ww if self.w else 0.0

    @property
    def variance(self) -> float:
        """The variance of the mean, visits taken to be independent."""
        spread = self.wwyy - 2 * self.mean * self.wwy + self.mean * self.mean * self.ww
        return max(0.0, spread) / (self.w * self.w)


def half_width(variance: float, count: float, alpha: float = ALPHA) -> float:
    """Return how far an estimate of this variance, from `count` visits, may be off.

    It holds for all times that one looks together, but with chance `alpha`: an asymptotic
    confidence sequence with Robbins' normal mixture (Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas,
    *Time-uniform central limit theory and asymptotic confidence sequences*, Annals of Statistics
    52(6), 2024, theorem 2.2).

    >>> round(half_width(1.0 / 200, 200.0), 3), round(1.96 * (1.0 / 200) ** 0.5, 3)
    (0.215, 0.139)
    """
    rho2 = (-2 * log(alpha) + log(1 - 2 * log(alpha))) / TIGHT_AT
    grown = count * rho2 + 1
    return sqrt(variance * 2 * grown / (count * rho2) * log(sqrt(grown) / alpha))


@dataclass(frozen=True, slots=True)
class Change:
    """How TTFT differs where the policy decides, as a share; below zero is sooner."""

    change: float
    low: float
    high: float

    @property
    def is_worse(self) -> bool:
        """Whether the whole interval says later."""
        return self.low > 0.0

    @property
    def is_better(self) -> bool:
        """Whether the whole interval says sooner."""
        return self.high < 0.0


@dataclass(slots=True)
class _Visit:
    opened_s: float
    requests: int = 0
    total: float = 0.0


class Holdout:
    """Splits prefixes in two sides, and compares their TTFT visit by visit.

    A prefix goes by the keyed hash of its first 2,048 tokens, so a burst stays on one side. Its
    TTFTs count as logarithms of their ratio to what computing the prompt takes alone, so that long
    and short prompts weigh the same: a change is one of their geometric mean.

    What the policy does to the held out side as well, evicting its KV or filling its queues, this
    does not see.
    """

    def __init__(self, share: float, key: bytes) -> None:
        self._below = int(share * 2**64)
        self._key = key
        self._open: OrderedDict[tuple[int, bool], _Visit] = OrderedDict()
        self._asked: OrderedDict[str, tuple[int, bool, float]] = OrderedDict()
        self.treated, self.held_out = Side(), Side()

    def holds_out(self, arrival: Arrival) -> bool:
        """Return whether `arrival` belongs to the side that the policy doesn't decide for."""
        prefix = str(boundary_key(arrival)) if arrival.chain else arrival.request_id
        return self._is_below(prefix, arrival.at_s)

    def holds_out_prefix(self, prefix: Prefix, chain: Chain, at_s: float) -> bool:
        """Return whether requests that begin with `chain`, down to `prefix`, do at `at_s`."""
        block_tokens = prefix.tokens // prefix.blocks
        shown = Arrival(at_s, chain[: prefix.blocks], block_tokens, prefix.tokens)
        return self.holds_out(shown)

    def _is_below(self, prefix: str, at_s: float) -> bool:
        text = f"{at_s // PERIOD_S} {prefix}".encode()
        digest = blake2b(text, digest_size=8, key=self._key).digest()
        return int.from_bytes(digest) < self._below

    def expect(self, arrival: Arrival, held_out: bool, alone_s: float) -> None:
        """Remember a request that takes `alone_s` by itself, until `took` tells of it."""
        while self._open and next(iter(self._open.values())).opened_s < arrival.at_s - VISIT_S:
            self._close()
        if not arrival.chain or not arrival.request_id:
            return
        place = boundary_key(arrival), held_out
        if place not in self._open:
            self._open[place] = _Visit(arrival.at_s)
            if len(self._open) > MAX_OPEN:
                self._close()
        self._asked[arrival.request_id] = (*place, alone_s)
        if len(self._asked) > MAX_OPEN:
            self._asked.popitem(last=False)

    def took(self, request_id: str, ttft_s: float) -> None:
        """Take in a TTFT; one that comes when its visit is long over is left out."""
        key, held_out, alone_s = self._asked.pop(request_id, (0, False, 0.0))
        visit = self._open.get((key, held_out))
        if visit is not None and alone_s > 0.0 and 0.0 < ttft_s < inf:
            visit.requests += 1
            visit.total += log(ttft_s / alone_s)

    def _close(self) -> None:
        (_, held_out), visit = self._open.popitem(last=False)
        if visit.requests >= LEAST_REQUESTS:
            side = self.held_out if held_out else self.treated
            side.add(min(visit.requests, MAX_WEIGHT), visit.total / visit.requests)

    def change(self) -> Change | None:
        """Return the change in TTFT with its interval; None before there is enough to tell."""
        sides = self.treated, self.held_out
        # The smaller side tells how much is known, whatever the shares: they stay as they are.
        count = min(side.count for side in sides)
        if count < LEAST_VISITS:
            return None
        half = half_width(sum(side.variance for side in sides), count)
        mean = self.treated.mean - self.held_out.mean
        return Change(*(exp(one) - 1 for one in (mean, mean - half, mean + half)))

    def start_again(self) -> None:
        """Forget what was counted: what comes may be different from what was."""
        self.treated, self.held_out = Side(), Side()
