"""How much of a burst is still to come, by the size of the prefix's last one."""

from bisect import bisect_right
from typing import Self

from models.base import Features
from models.counts import Counts
from models.dispersion import Dispersion
from models.snapshot import recall
from models.state import State, check_version, read_number, read_numbers, read_state

SHARES = (0.06, 0.12, 0.25, 0.5, 0.75, 1.0, 1.5)
"""Arrivals of a burst so far over those of the one before: between these, what comes is alike."""

SIZES = (1.5, 2.5, 4.5, 9.0, 18.0, 36.0, 72.0)
"""Arrivals of a burst so far, where there was none before."""

GAPS_S = (0.05, 0.2, 1.0, 5.0, 20.0, 60.0)
"""Seconds between the last two arrivals: a fast burst has more of itself within the horizon."""

CELLS = 2 * (len(SHARES) + 1) * (len(GAPS_S) + 1)

FORGET = 1.0 / 500.0
"""What a cell forgets with each arrival expected there; a label counts as one at most."""

PRIOR_SCALE, PRIOR_CLAIM = 0.1, 5.0
"""Share of a burst's size that comes before anything is known, and the claim it counts as."""

MAX_SIZE = 1e6
"""Larger sizes are taken as this."""


class BurstSize:
    """A share of the size of the prefix's last burst, learnt by how far this one has got.

    A job that comes back is about as large as last time. So what is still to come within the
    horizon is a share of that, and which share depends on how much of it has come and how fast: a
    table of `CELLS` ratios of what came to what was claimed, each slowly forgotten. Where there was
    no burst before, the share is of this one's size so far: long bursts go on for longer.

    Parameters
    ----------
    horizon_s
        Seconds to look ahead.

    Raises
    ------
    ValueError
        If `horizon_s` is not positive.

    Examples
    --------
    The last burst had 40 arrivals, this one 4 in quick succession, and 20 more came in 5 s:

    >>> x = {"last_burst_size": 40.0, "burst_size": 4.0, "gap_last_s": 0.1}
    >>> model = BurstSize(horizon_s=5.0)
    >>> for _ in range(500):
    ...     model.learn_one(x, 20)
    >>> round(model.predict_one({**x, "last_burst_size": 60.0, "burst_size": 5.0}).mean)
    30
    """

    def __init__(self, horizon_s: float) -> None:
        if not horizon_s > 0.0:
            raise ValueError(f"horizon_s must be positive, got {horizon_s!r}")
        self._horizon_s = horizon_s
        self._came = [PRIOR_SCALE * PRIOR_CLAIM] * CELLS
        self._claimed = [PRIOR_CLAIM] * CELLS
        self._dispersion = Dispersion()

    def predict_one(self, x: Features) -> Counts:
        """Return the distribution of the number of arrivals within the horizon."""
        mean = self.mean(x)
        return Counts(mean, self._dispersion.shape(mean))

    def mean(self, x: Features) -> float:
        """Return the expected number of arrivals within the horizon."""
        return self._mean(*recall(x, _place))

    def learn_one(self, x: Features, count: int) -> None:
        """Take in that `count` arrivals followed within the horizon."""
        self.learn(x, count)

    def learn(self, x: Features, count: int) -> float:
        """Do the same, and return the mean that was forecast before."""
        cell, claim = recall(x, _place)
        mean = self._mean(cell, claim)
        self._dispersion.learn(mean, count)
        keep = 1.0 - FORGET * min(mean, 1.0)
        self._came[cell] = keep * self._came[cell] + count
        self._claimed[cell] = keep * self._claimed[cell] + claim
        return mean

    def to_state(self) -> State:
        """Return all that was learnt as plain JSON values."""
        return {
            "version": 1,
            "horizon_s": self._horizon_s,
            "came": list(self._came),
            "claimed": list(self._claimed),
            "dispersion": self._dispersion.to_state(),
        }

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model that `to_state` described.

        Raises
        ------
        ValueError
            If a value is missing or wrong.
        """
        check_version(state, 1)
        model = cls(read_number(state, "horizon_s"))
        model._came = read_numbers(state, "came", CELLS, low=0.0)
        model._claimed = read_numbers(state, "claimed", CELLS, low=1e-300)
        model._dispersion = Dispersion.from_state(read_state(state, "dispersion"))
        return model

    def _mean(self, cell: int, claim: float) -> float:
        return min(claim * self._came[cell] / self._claimed[cell], MAX_SIZE)


def _place(x: Features) -> tuple[int, float]:
    """Return the cell of the table that `x` belongs to, and the size that it is a share of."""
    so_far = min(max(x["burst_size"], 1.0), MAX_SIZE)
    last = min(max(x["last_burst_size"], 0.0), MAX_SIZE)
    if last > 0.0:
        row, claim = bisect_right(SHARES, so_far / last), max(last, so_far)
    else:
        row, claim = len(SHARES) + 1 + bisect_right(SIZES, so_far), so_far
    return row * (len(GAPS_S) + 1) + bisect_right(GAPS_S, x["gap_last_s"]), claim
