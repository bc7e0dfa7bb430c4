"""What became of each sample: the count that a learner should have predicted, once it is known."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite

from forecasting.tracker import Sample


@dataclass(frozen=True, slots=True)
class Label:
    """That `count` arrivals followed `sample` within `horizon_s`."""

    sample: Sample
    horizon_s: float
    count: int


class LabelQueue:
    """Holds samples until their horizons have passed, then says how many arrivals followed.

    The count is of arrivals after the sample's own, up to and with at_s + horizon_s. Of arrivals
    at one and the same time those count that come later in order: they were still to come.

    It is read off the prefix's node, so it is exact as long as `due` is run through before each
    newer arrival is counted. A prefix that was pruned counts up to then.

    Parameters
    ----------
    horizons
        Seconds to look ahead.
    max_samples
        Most samples held at a time, a sample being some 2.5 KiB. A quarter of them may come at
        once, so that all of a burst is seen; the rest is spread evenly over the longest horizon,
        75 a second: neighbours say much the same where more come.

    Attributes
    ----------
    dropped
        Samples not kept.

    Raises
    ------
    ValueError
        If a horizon is not a positive number of seconds, or `max_samples` is below 1.
    """

    def __init__(self, horizons: Iterable[float], max_samples: int = 6_000) -> None:
        self.dropped = 0
        self._queues: list[tuple[float, deque[Sample]]] = []
        horizons = sorted(set(horizons))
        for horizon_s in horizons:
            if not (isfinite(horizon_s) and horizon_s > 0.0):
                raise ValueError(f"a horizon must be positive and finite, got {horizon_s!r}")
            self._queues.append((horizon_s, deque()))
        if max_samples < 1:
            raise ValueError(f"max_samples must be at least 1, got {max_samples!r}")
        self._at_once = max(1.0, max_samples / 4.0)
        self._each_s = 0.75 * max_samples / max(horizons, default=1.0)
        self._max_samples = max_samples
        self._free, self._free_at_s = self._at_once, 0.0

    def __len__(self) -> int:
        """Return the number of samples whose longest horizon has not passed."""
        return len(self._queues[-1][1]) if self._queues else 0

    def add(self, sample: Sample) -> None:
        """Hold `sample`, unless too many are held. Times never go back."""
        passed_s = sample.at_s - self._free_at_s
        self._free = min(self._free + passed_s * self._each_s, self._at_once)
        self._free_at_s = sample.at_s
        if self._free < 1.0 or len(self) >= self._max_samples:
            self.dropped += 1
            return
        self._free -= 1.0
        for _, queue in self._queues:
            queue.append(sample)

    def due(self, now_s: float) -> Iterator[Label]:
        """Yield the labels whose horizon ended before `now_s`; each comes once.

        Not those that end right at `now_s`: another arrival may come at that very time.
        """
        for horizon_s, queue in self._queues:
            while queue and queue[0].at_s + horizon_s < now_s:
                sample = queue.popleft()
                followed = sample.node.stats.arrivals - sample.count_before
                yield Label(sample, horizon_s, followed)
