"""A challenger against the champion on the same samples: who is better, and if by chance."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from math import floor

import numpy as np
from numpy.typing import NDArray

from btb.intervals import Interval, draw_clusters, percentile_interval
from forecasting.scores import poisson_deviance

BLOCK_S = 60.0
"""Width of a cluster of labels in seconds: about one burst, as in comparisons of policies."""

FEWEST_BLOCKS = 20
"""With fewer, a percentile interval is too narrow, and nobody is called better."""

MOST_BLOCKS = 100_000
"""Blocks kept: some ten weeks. The oldest are let go of past this."""

Sums = NDArray[np.float64]
"""Labels, and losses of champion and challenger, a row a block: shape (blocks, 3)."""

BATCH = 512
"""Labels that are scored at once."""

LEAST_LOSS = 1e-9
"""A mean loss below is taken as this, so that a share of it can be said."""

SEED = 0
"""Of the draws that make an interval."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How two models have done over the same `labels`, at one horizon.

    Parameters
    ----------
    labels, blocks
        Forecasts of each that were scored, and the minutes that they are from.
    champion, challenger
        Mean Poisson deviances.
    change, change_ci
        The challenger's over the champion's, less 1: below zero it is better. The interval holds
        the true value with probability 0.95.
    """

    labels: int
    blocks: int
    champion: float
    challenger: float
    change: float
    change_ci: Interval

    @property
    def enough(self) -> bool:
        """Whether there are enough blocks for a verdict."""
        return self.blocks >= FEWEST_BLOCKS

    @property
    def better(self) -> bool:
        """Whether the challenger is, by more than its interval."""
        return self.enough and self.change_ci[1] < 0.0

    @property
    def worse(self) -> bool:
        """Whether the challenger is, by more than its interval."""
        return self.enough and self.change_ci[0] > 0.0

    def __str__(self) -> str:
        """Say it with the figures."""
        low, high = (f"{100.0 * end:+.1f}" for end in self.change_ci)
        return (
            f"{self.challenger:.4g} against {self.champion:.4g}, {100.0 * self.change:+.1f} % "
            f"({low} to {high}), over {self.labels:,} forecasts in {self.blocks:,} minutes"
        )


class Contest:
    """Adds up the losses of two models at one horizon, by blocks of time.

    Parameters
    ----------
    most_blocks
        Blocks kept. A block is some 200 bytes.

    Examples
    --------
    >>> contest = Contest()
    >>> for minute in range(40):
    ...     contest.add(0, 60.0 * minute, champion=2.0, challenger=1.0, count=1)
    >>> contest.standing().better
    True
    """

    def __init__(self, most_blocks: int = MOST_BLOCKS) -> None:
        self._most_blocks = most_blocks
        self._waiting: list[tuple[tuple[int, int], float, float, float]] = []
        self._blocks: dict[tuple[int, int], tuple[int, float, float]] = {}

    def add(
        self, window: int, at_s: float, *, champion: float, challenger: float, count: int
    ) -> None:
        """Score that `count` came where two means were forecast at `at_s` of the given window."""
        block = (window, floor(at_s / BLOCK_S))
        self._waiting.append((block, champion, challenger, float(count)))
        if len(self._waiting) >= BATCH:
            self._flush()

    def standing(self, *, later_half: bool = False) -> Standing | None:
        """Return how the two stand, over all blocks or the later half; None where there is none.

        The later half is that of the windows, rounded up, or of the one window's blocks.
        """
        self._flush()
        kept = _later_half(self._blocks) if later_half else self._blocks
        return stand(np.array([self._blocks[block] for block in kept]))

    def sums(self, windows: Container[int] | None = None) -> Sums:
        """Return labels and losses of champion and challenger, a row a block of these `windows`.

        Quick, unlike what `stand` makes of it.
        """
        self._flush()
        return np.array(
            [
                sums
                for (window, _), sums in self._blocks.items()
                if windows is None or window in windows
            ]
        )

    def _flush(self) -> None:
        if not self._waiting:
            return
        blocks, *columns = zip(*self._waiting, strict=True)
        champion, challenger, count = np.array(columns)
        self._waiting = []
        losses = poisson_deviance(champion, count), poisson_deviance(challenger, count)
        for block, first, second in zip(blocks, *(one.tolist() for one in losses), strict=True):
            labels, was, other = self._blocks.get(block, (0, 0.0, 0.0))
            self._blocks[block] = (labels + 1, was + first, other + second)
        while len(self._blocks) > self._most_blocks:
            del self._blocks[next(iter(self._blocks))]


def stand(sums: Sums) -> Standing | None:
    """Return what the sums of `Contest.sums` say, None where there are none."""
    if not len(sums):
        return None
    sums = np.maximum(sums, LEAST_LOSS * sums[:, :1])
    labels, champion, challenger = sums.sum(axis=0)
    drawn = draw_clusters(len(sums), seed=SEED) @ sums
    return Standing(
        labels=int(labels),
        blocks=len(sums),
        champion=float(champion / labels),
        challenger=float(challenger / labels),
        change=float(challenger / champion - 1.0),
        change_ci=percentile_interval(drawn[:, 2] / drawn[:, 1] - 1.0, len(sums)),
    )


def _later_half(blocks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    ordered = sorted(blocks)
    windows = sorted({window for window, _ in ordered})
    if len(windows) > 1:
        return [block for block in ordered if block[0] >= windows[len(windows) // 2]]
    return ordered[len(ordered) // 2 :]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a challenger is to be champion, and why, in words."""

    better: bool
    reason: str


def decide(standings: Mapping[float, Standing | None], headline_s: float) -> Verdict:
    """Return whether the challenger has won: better at `headline_s`, and worse nowhere else.

    Better and worse by more than the interval, in Poisson deviance. `standings` are by horizon in
    seconds.
    """
    headline = standings[headline_s]
    if headline is None or not headline.enough:
        minutes = headline.blocks if headline is not None else 0
        return Verdict(
            False, f"too little to tell: {minutes} minutes with forecasts, {FEWEST_BLOCKS} needed"
        )
    figures = f"Poisson deviance at {headline_s:g} s {headline}"
    if not headline.better:
        chance = "" if headline.worse else ", which may be chance"
        return Verdict(False, f"{figures}{chance}")
    for horizon_s, other in standings.items():
        if other is not None and other.worse:
            return Verdict(False, f"{figures}, but worse at {horizon_s:g} s: {other}")
    return Verdict(True, figures)
