"""A log to fit to, as numbers: which part decides when to stop, and whether there is enough of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.base import Features

FEWEST_SAMPLES = 1_000
"""Samples to fit to, at least."""

FEWEST_ARRIVALS = 10
"""Arrivals that must have followed the older samples, and the newer ones, at least."""

HELD_BACK = 5
"""One sample in so many, the newest ones, is held back at first."""

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """Samples in the order of time.

    The newest fifth is held back: a random choice would not do, for samples of one burst say much
    the same, and what has to be foreseen is always later.

    Parameters
    ----------
    names
        Names of the features, in the order of the columns.
    table
        A row a sample, (samples, features).
    counts
        What followed each.
    """

    names: tuple[str, ...]
    table: Table
    counts: Table

    @classmethod
    def read(cls, xs: Sequence[Features], counts: Sequence[int]) -> "TrainingLog":
        """Return the log of samples `xs` and what followed each.

        Raises
        ------
        ValueError
            If there are not as many counts as samples, or there is too little to learn from.
        """
        if len(xs) != len(counts):
            raise ValueError(f"{len(xs)} samples but {len(counts)} counts")
        if len(xs) < FEWEST_SAMPLES:
            raise ValueError(f"fitting takes {FEWEST_SAMPLES:,} samples, got {len(xs):,}")
        names = tuple(xs[0])
        table = np.array([[x[name] for name in names] for x in xs], dtype=np.float64)
        log = cls(names, table, np.array(counts, dtype=np.float64))
        for part, which in ((log.older, "older"), (log.newer, "newest")):
            if (came := part.counts.sum()) < FEWEST_ARRIVALS:
                raise ValueError(
                    f"fitting takes {FEWEST_ARRIVALS} arrivals after the {which} samples, "
                    f"got {came:g} after {len(part.counts):,}"
                )
        return log

    @property
    def older(self) -> "TrainingLog":
        """All but the newest fifth."""
        return TrainingLog(self.names, self.table[: self._split], self.counts[: self._split])

    @property
    def newer(self) -> "TrainingLog":
        """The newest fifth."""
        return TrainingLog(self.names, self.table[self._split :], self.counts[self._split :])

    @property
    def _split(self) -> int:
        return len(self.counts) - len(self.counts) // HELD_BACK
