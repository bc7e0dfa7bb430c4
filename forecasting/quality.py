"""How good the forecasts of one model at one horizon were, added up as their labels come in."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecasting import scores
from models.counts import Counts

LOW, HIGH = 0.1, 0.9
"""Quantiles between which the interval that should hold 80 % of the counts lies."""

BATCH = 512
"""Forecasts that are scored at once."""

MAX_SPELLS = 64
"""Most stretches of time that scores are kept apart for; then they are joined in pairs."""

BIN_EDGES = tuple(10.0 ** (k / 4.0) for k in range(-16, 13))
"""Forecast means between which calibration is counted: four bins a decade, 0.0001 to 1,000."""

_SUMS = 7


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Forecasts of about the same mean: how many, their mean, and the mean of what came."""

    labels: int
    forecast: float
    came: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over `labels` forecasts; lower is better but for the coverage.

    Parameters
    ----------
    deviance
        Poisson deviance.
    crps
        Continuous ranked probability score, in arrivals.
    pinball
        Mean pinball loss of the 10 % and the 90 % quantile, in arrivals.
    coverage, coverage_due
        Share of counts within [10 % quantile, 90 % quantile], ends included, and what the
        forecasts themselves gave that interval. Counts being whole numbers, it is at least 0.8 and
        often far more: where nothing comes with probability 0.99, the interval is [0, 0].
    forecast, came
        Mean forecast and mean count.
    """

    labels: int
    deviance: float
    crps: float
    pinball: float
    coverage: float
    coverage_due: float
    forecast: float
    came: float


class Quality:
    """Scores of one model at one horizon, in constant memory.

    Scores are kept apart by stretches of time, at most `MAX_SPELLS` of equally many labels, so that
    the second half can be told from the whole and a curve can be drawn.

    Examples
    --------
    >>> quality = Quality()
    >>> for count in [0, 1, 2, 3] * 10:
    ...     quality.add(Counts(1.5), count)
    >>> quality.scores().came, quality.scores(since=0.5).labels
    (1.5, 20)
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, float, float]] = []
        self._spells: list[NDArray[np.float64]] = []
        self._labels: list[int] = []
        self._batches_a_spell = 1
        self._bins = np.zeros((len(BIN_EDGES) + 1, 3))

    def add(self, forecast: Counts, count: int) -> None:
        """Score that `count` came where a model made `forecast`.

        Raises
        ------
        ValueError
            If it gives more zeros than a negative binomial: no model's forecast does.
        """
        if forecast.idle:
            raise ValueError(f"only a model's forecast is scored, got {forecast}")
        self._waiting.append((forecast.mean, forecast.shape, float(count)))
        if len(self._waiting) >= BATCH:
            self._flush()

    def scores(self, since: float = 0.0) -> Scores | None:
        """Return the scores of the labels after the first `since` of all, None without labels."""
        self._flush()
        total = sum(self._labels)
        labels = 0
        sums = np.zeros(_SUMS)
        for size, spell in zip(reversed(self._labels), reversed(self._spells), strict=True):
            missing = (1.0 - since) * total - labels
            if missing <= 0.0:
                break
            share = min(1.0, missing / size)
            labels += round(share * size)
            sums += share * spell
        if labels == 0:
            return None
        return Scores(labels, *(float(mean) for mean in sums / labels))

    def curve(self) -> list[tuple[int, float]]:
        """Return (labels so far, mean deviance since the point before), oldest first."""
        self._flush()
        points, seen = [], 0
        for size, spell in zip(self._labels, self._spells, strict=True):
            seen += size
            points.append((seen, float(spell[0] / size)))
        return points

    def calibration(self) -> list[CalibrationBin]:
        """Return what came for forecasts of about the same mean, low to high."""
        self._flush()
        return [
            CalibrationBin(int(labels), float(forecast / labels), float(came / labels))
            for labels, forecast, came in self._bins
            if labels
        ]

    def _flush(self) -> None:
        if not self._waiting:
            return
        mean, shape, count = np.array(self._waiting).T
        self._waiting = []
        low = scores.quantile(mean, shape, LOW)
        high = scores.quantile(mean, shape, HIGH)
        inside = scores.at_most(high, mean, shape) - scores.at_most(low - 1.0, mean, shape)
        losses = scores.pinball(low, count, LOW) + scores.pinball(high, count, HIGH)
        sums = np.array(
            [
                scores.poisson_deviance(mean, count).sum(),
                scores.crps(mean, shape, count).sum(),
                losses.sum() / 2.0,
                float(((low <= count) & (count <= high)).sum()),
                inside.sum(),
                mean.sum(),
                count.sum(),
            ]
        )
        self._add_spell(len(count), sums)
        rows = np.column_stack([np.ones_like(mean), mean, count])
        np.add.at(self._bins, np.digitize(mean, BIN_EDGES), rows)

    def _add_spell(self, labels: int, sums: NDArray[np.float64]) -> None:
        if self._labels and self._labels[-1] < self._batches_a_spell * BATCH:
            self._labels[-1] += labels
            self._spells[-1] = self._spells[-1] + sums
            return
        self._labels.append(labels)
        self._spells.append(sums)
        if len(self._labels) > MAX_SPELLS:
            self._join_pairs()

    def _join_pairs(self) -> None:
        pairs = range(0, len(self._labels), 2)
        self._labels = [sum(self._labels[k : k + 2]) for k in pairs]
        self._spells = [np.sum(self._spells[k : k + 2], axis=0) for k in pairs]
        self._batches_a_spell *= 2
