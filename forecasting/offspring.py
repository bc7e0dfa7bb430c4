"""What followed a prompt: how many requests went on from all of it, how soon, and for how long."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forecasting.returning import BURST_SHAPE, Return

WATCH_S = 60.0
"""How long a prompt is watched after it came; the longest horizon."""

KEPT = 32
"""Latest prompts of one kind whose outcomes are kept."""

PRIOR_CLAIM = 3.0
"""Prompts that all outcomes of a wider kind count as, at most, beside those of the narrowest."""


class Outcome(NamedTuple):
    """What became of one prompt within `WATCH_S`.

    `delay_s` is the time to the first request that began with all of it, infinite where none did;
    `requests` how many did, and `span_s` the seconds from the first to the last of them.
    """

    delay_s: float
    requests: int
    span_s: float


class Sofar(NamedTuple):
    """What has come of a prompt `since_s` after it: `requests` of them, the first at `delay_s`."""

    since_s: float
    requests: int
    delay_s: float


class Weighed(NamedTuple):
    """An outcome of a prompt like this one, and how much it counts."""

    outcome: Outcome
    weight: float


class Offspring:
    """The outcomes of the latest prompts of one kind: those below one prefix, or of one tenant."""

    __slots__ = ("_outcomes", "_requests")

    def __init__(self) -> None:
        self._outcomes: deque[Outcome] = deque()
        self._requests = 0

    def __len__(self) -> int:
        return len(self._outcomes)

    def add(self, outcome: Outcome) -> None:
        """Take in what became of one more prompt."""
        self._outcomes.append(outcome)
        self._requests += outcome.requests
        if len(self._outcomes) > KEPT:
            self._requests -= self._outcomes.popleft().requests

    @property
    def mean(self) -> float:
        """Mean number of requests that followed a prompt, 0 before the first."""
        return self._requests / max(len(self._outcomes), 1)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)


def two_kinds() -> tuple[Offspring, Offspring]:
    """Return what followed first prompts, and what followed those that continue one: nothing yet.

    >>> [len(kind) for kind in two_kinds()]
    [0, 0]
    """
    return Offspring(), Offspring()


def pooled(narrow_to_wide: Sequence[Offspring]) -> list[Weighed]:
    """Return all outcomes: the narrowest kind's count as one each, each wider one's as a prior.

    A prompt is most like those below the same prefix, then like others of its tenant, then like
    all: partial pooling (Gelman et al., Bayesian Data Analysis, 2013, chapter 5), with a fixed
    claim in place of an estimated one.
    """
    narrow, *wider = narrow_to_wide
    found = [Weighed(outcome, 1.0) for outcome in narrow]
    for kind in wider:
        found += [Weighed(outcome, min(1.0, PRIOR_CLAIM / len(kind))) for outcome in kind]
    return found


def to_come(alike: Sequence[Weighed], sofar: Sofar, horizons_s: Sequence[float]) -> list[Return]:
    """Return what is to be expected within each horizon, empty where nothing alike is known.

    Those of the outcomes count that are still possible: with nothing so far, those whose first
    request came later than this; with some, those that got as many. A prompt's requests are taken
    to be spread evenly over their span.

    >>> eight = Weighed(Outcome(delay_s=5.0, requests=8, span_s=2.0), 1.0)
    >>> none = Weighed(Outcome(delay_s=inf, requests=0, span_s=0.0), 1.0)
    >>> [one[:2] for one in to_come([eight, none], Sofar(1.0, 0, inf), [1.0, 5.0])]
    [(0.0, 0.0), (0.5, 2.0)]
    >>> [one[:2] for one in to_come([eight, none], Sofar(6.0, 5, 5.0), [1.0])]
    [(1.0, 3.0)]
    """
    if sofar.requests:
        possible = [one for one in alike if one.outcome.requests >= sofar.requests]
    else:
        possible = [one for one in alike if one.outcome.delay_s > sofar.since_s]
    total = sum(one.weight for one in possible)
    if not total:
        return []
    return [_within(possible, total, sofar, horizon_s) for horizon_s in horizons_s]


def _within(possible: Sequence[Weighed], total: float, sofar: Sofar, horizon_s: float) -> Return:
    came = [(_left(outcome, sofar, horizon_s), weight) for outcome, weight in possible]
    came = [(left, weight) for left, weight in came if left > 0.0]
    busy = sum(weight for _, weight in came)
    if not busy:
        return Return(0.0, 0.0)
    mean = sum(weight * left for left, weight in came) / busy
    squares = sum(weight * (left - mean) ** 2 for left, weight in came)
    # Moments of a negative binomial, and two that scatter as bursts usually do.
    excess = max(squares - busy * mean, 0.0) / (mean * mean) + 2.0 / BURST_SHAPE
    return Return(busy / total, busy * mean / total, (busy + 2.0) / excess)


def _left(outcome: Outcome, sofar: Sofar, horizon_s: float) -> float:
    """Return how many more came within the horizon where all went as in `outcome`."""
    first_s = sofar.delay_s if sofar.requests else outcome.delay_s
    begins_s = max(sofar.since_s, first_s)
    inside_s = sofar.since_s + horizon_s - begins_s
    if inside_s < 0.0:
        return 0.0
    span_s = first_s + outcome.span_s - begins_s
    share = min(1.0, inside_s / span_s) if span_s > 0.0 else 1.0
    return share * (outcome.requests - sofar.requests)
