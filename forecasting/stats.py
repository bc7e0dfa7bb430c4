"""What is kept of the arrivals at one prefix, in constant memory."""

from models.recurrence import KEPT, Occurrence, Schedule

BURST_SILENCE_S = 60.0
"""An arrival after a longer silence than this starts a new burst; the longest horizon."""

LEAST_SIZE = 5
"""Arrivals of a burst of which it is noted when it came: one and four more, as in `btb audit`.
Fewer need no copy, and most of what comes back with no more are people who took a break."""

PRIOR_SHARE, NEWEST_GAP_WEIGHT = 0.3, 0.1
"""Share of short gaps before there is one, counting as one gap; least weight of the newest."""

GAPS = 8
"""Latest gaps between arrivals that are kept: the pace of an agent between its tool calls."""

_NEWEST_WEIGHT = 0.25
"""Least weight of the newest interval between bursts in their mean: a schedule may change."""


def decay_factors(seconds: float) -> tuple[float, float, float, float, float, float]:
    """Return what is left of one arrival after `seconds`, for each of `models.base.HALF_LIVES_S`.

    Each half-life is a whole multiple of the one before, so all but one are powers: 1800 s is
    6 times 300 s, that 5 times 60 s, and so on. One power function instead of six.

    >>> [round(factor, 6) for factor in decay_factors(15.0)]
    [3.1e-05, 0.125, 0.5, 0.840896, 0.965936, 0.99424]
    """
    f1800: float = 2.0 ** (seconds * (-1.0 / 1800.0))
    f900 = f1800 * f1800
    f300 = f900 * f900 * f900
    f150 = f300 * f300
    f60 = f150 * f150 * f300
    f30 = f60 * f60
    f15 = f30 * f30
    f5 = f15 * f15 * f15
    f2 = f5 * f5  # 2.5 s
    return (f2 * f2 * f5, f5, f15, f60, f300, f1800)


class PrefixStats:
    """The arrivals at one prefix: how many, how recent, how spaced, and its bursts so far.

    Times never go back; an arrival before `last_s` counts as if it came then.

    Attributes
    ----------
    arrivals
        All arrivals so far.
    first_s, last_s
        When the first and the last one came.
    gaps_s
        Seconds between the latest arrivals, newest first, at most `GAPS`.
    count_1s ... count_1800s
        Arrivals, each halved every 1 ... 1,800 s, as they stood at `last_s`.
    bursts, burst_start_s, burst_size, burst_before
        How many bursts began, when the last one did, its arrivals so far, and those of the one
        before. The first arrival begins a burst, and so does each one after `BURST_SILENCE_S`.
    burst_interval_s
        Mean seconds between the starts of bursts, recent ones more; -1 before the second.
    input_tokens, input_growth_tokens
        Length of the last prompt, and how much longer than the one before it is.
    gap_share_15s, gap_share_60s
        Share of gaps that were no longer than 15 and 60 s, newer ones counting more.
    past
        The latest bursts that are over, of `LEAST_SIZE` arrivals or more, at most `KEPT`.
    schedule
        When the next burst is due, where the tracker has found a rhythm; else None.
    """

    __slots__ = (
        "arrivals",
        "burst_before",
        "burst_interval_s",
        "burst_size",
        "burst_start_s",
        "bursts",
        "count_1s",
        "count_5s",
        "count_15s",
        "count_60s",
        "count_300s",
        "count_1800s",
        "first_s",
        "gap_share_15s",
        "gap_share_60s",
        "gaps_s",
        "input_growth_tokens",
        "input_tokens",
        "last_s",
        "past",
        "schedule",
    )

    def __init__(self) -> None:
        self.arrivals = self.bursts = self.burst_size = self.burst_before = 0
        self.input_tokens = self.input_growth_tokens = 0
        self.first_s = self.last_s = self.burst_start_s = 0.0
        self.burst_interval_s = -1.0
        self.gaps_s: tuple[float, ...] = ()
        self.gap_share_15s = self.gap_share_60s = PRIOR_SHARE
        self.count_1s = self.count_5s = self.count_15s = 0.0
        self.count_60s = self.count_300s = self.count_1800s = 0.0
        self.past: tuple[Occurrence, ...] = ()
        self.schedule: Schedule | None = None

    def add(self, at_s: float, input_tokens: int = 0) -> None:
        """Count one arrival at `at_s`, with a prompt of `input_tokens`."""
        if self.arrivals:
            self.input_growth_tokens = input_tokens - self.input_tokens
        self.input_tokens = input_tokens
        if not self.arrivals:
            self._begin(at_s)
            return
        self.arrivals += 1
        gap_s = at_s - self.last_s
        if gap_s > 0.0:
            self.last_s = at_s
            self._decay(gap_s)
        else:
            gap_s = 0.0
        self.count_1s += 1.0
        self.count_5s += 1.0
        self.count_15s += 1.0
        self.count_60s += 1.0
        self.count_300s += 1.0
        self.count_1800s += 1.0
        self.gaps_s = (gap_s, *self.gaps_s[: GAPS - 1])
        weight = max(1.0 / self.arrivals, NEWEST_GAP_WEIGHT)
        self.gap_share_15s += weight * ((gap_s <= 15.0) - self.gap_share_15s)
        self.gap_share_60s += weight * ((gap_s <= 60.0) - self.gap_share_60s)
        if gap_s > BURST_SILENCE_S:
            self._begin_burst(at_s, at_s - gap_s)
        else:
            self.burst_size += 1

    def counts(self, at_s: float) -> tuple[float, float, float, float, float, float]:
        """Return the decayed counts at `at_s`, in the order of `models.base.HALF_LIVES_S`."""
        f1, f5, f15, f60, f300, f1800 = decay_factors(max(at_s - self.last_s, 0.0))
        return (
            self.count_1s * f1,
            self.count_5s * f5,
            self.count_15s * f15,
            self.count_60s * f60,
            self.count_300s * f300,
            self.count_1800s * f1800,
        )

    def copy(self) -> "PrefixStats":
        """Return the same statistics, to go on by themselves."""
        twin = PrefixStats.__new__(PrefixStats)
        for name in PrefixStats.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin

    def _begin(self, at_s: float) -> None:
        # Constants, not sums: a prefix seen once, as most are, then owns one float object only.
        self.arrivals = self.bursts = self.burst_size = 1
        self.first_s = self.last_s = self.burst_start_s = at_s
        self.count_1s = self.count_5s = self.count_15s = 1.0
        self.count_60s = self.count_300s = self.count_1800s = 1.0

    def _decay(self, seconds: float) -> None:
        f1, f5, f15, f60, f300, f1800 = decay_factors(seconds)
        self.count_1s *= f1
        self.count_5s *= f5
        self.count_15s *= f15
        self.count_60s *= f60
        self.count_300s *= f300
        self.count_1800s *= f1800

    def _begin_burst(self, at_s: float, ended_s: float) -> None:
        if self.burst_size >= LEAST_SIZE:
            over = Occurrence(self.burst_start_s, self.burst_size, ended_s - self.burst_start_s)
            self.past = (*self.past, over)[-KEPT:]
        interval_s = at_s - self.burst_start_s
        if self.bursts == 1:
            self.burst_interval_s = interval_s
        else:
            weight = max(1.0 / self.bursts, _NEWEST_WEIGHT)
            self.burst_interval_s += weight * (interval_s - self.burst_interval_s)
        self.bursts += 1
        self.burst_start_s = at_s
        self.burst_before = self.burst_size
        self.burst_size = 1
