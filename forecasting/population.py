"""What is kept of all the arrivals of one tenant, or of everybody, in constant memory."""

from forecasting.offspring import two_kinds
from models.recurrence import Family

_NEWEST_OUTCOME_WEIGHT = 0.02
"""Least weight of the newest new prefix in the repeat share: about the last 50 count."""


class Population:
    """The arrivals of one tenant, or of all, and what became of the prefixes they began.

    Attributes
    ----------
    repeat_share
        Of prefixes seen for the first time, the share that was asked for again within a minute;
        an exponentially weighted mean over about the last 50, 0 before there is one.
    firsts
        Prefixes that `repeat_share` has been told of.
    family
        How punctual their recurring prefixes are.
    offspring
        What followed their first prompts, and those that continued one.
    """

    __slots__ = (
        "_count_60s",
        "_count_300s",
        "_last_s",
        "family",
        "firsts",
        "offspring",
        "repeat_share",
    )

    def __init__(self) -> None:
        self._last_s = self._count_60s = self._count_300s = 0.0
        self.repeat_share = 0.0
        self.firsts = 0
        self.family = Family()
        self.offspring = two_kinds()

    def add(self, at_s: float) -> None:
        """Count one arrival."""
        count_60s, count_300s = self.counts(at_s)
        self._count_60s = count_60s + 1.0
        self._count_300s = count_300s + 1.0
        self._last_s = max(at_s, self._last_s)

    def counts(self, at_s: float) -> tuple[float, float]:
        """Return the arrivals as they stand at `at_s`, halved every 60 and every 300 s.

        >>> everyone = Population()
        >>> everyone.add(at_s=0.0)
        >>> [round(count, 6) for count in everyone.counts(at_s=60.0)]
        [0.5, 0.870551]
        """
        f300: float = 2.0 ** (max(at_s - self._last_s, 0.0) * (-1.0 / 300.0))
        f150 = f300 * f300
        return self._count_60s * (f150 * f150 * f300), self._count_300s * f300

    def learn_first(self, repeated: bool) -> None:
        """Take in whether a prefix of theirs was asked for again within a minute of its first."""
        self.firsts += 1
        weight = max(1.0 / self.firsts, _NEWEST_OUTCOME_WEIGHT)
        self.repeat_share += weight * (repeated - self.repeat_share)
