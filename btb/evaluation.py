"""Bursts as alarms: how many are seen, how early, and how often in vain; models beside rules."""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from btb.errors import ConfigError
from btb.traces import Trace
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from forecasting.forecaster import Forecaster
from forecasting.stats import BURST_SILENCE_S
from models.base import Learner

SEEN = (0, 1, 2, 3, 5)
"""Arrivals of a burst by which alarms are counted; 0 is before its first."""

AHEAD_CHANCE = 0.1
"""Probability of a burst at which an alarm opens before the first arrival; it is withdrawn at half
of this. A job that comes back every half an hour is due within any one minute with no more."""

TICK_S = 5.0
"""Seconds between two looks at what is due."""

REPORT_EVERY = 256
"""Requests between two calls of `on_rows`."""


@dataclass(frozen=True, slots=True)
class BurstKind:
    """What counts as a burst: an arrival followed by `more` on its prefix within `within_s`.

    `threshold` is the probability of that from which a model sounds an alarm.
    """

    more: int = 20
    within_s: float = 60.0
    threshold: float = 0.5


@dataclass(frozen=True, slots=True)
class Rule:
    """An alarm at `count` arrivals on a prefix within `window_s`."""

    count: int
    window_s: float


RULES: Mapping[str, Rule] = {
    "2 in 1 s (prototype)": Rule(2, 1.0),
    "8 in 10 s (Mooncake)": Rule(8, 10.0),
    "2 in 0.1 s (llm-d)": Rule(2, 0.1),
}
"""The article's rule; Mooncake's heat of 0.8 requests/s over 10 s; two in llm-d's window."""


@dataclass(slots=True)
class Alarms:
    """What became of the alarms of one detector.

    Parameters
    ----------
    true, false
        Alarms by the arrivals of their episode when they sounded, where a burst came of it and
        where not. Under 0 are those before the first arrival, `withdrawn` ones left out.
    withdrawn
        Alarms before a first arrival that was then not expected any more.
    lead_arrivals, lead_s
        Of true alarms: arrivals still to come within the time of a burst, and seconds until there
        were enough for one; below zero where the alarm came after.
    """

    true: Counter[int] = field(default_factory=Counter)
    false: Counter[int] = field(default_factory=Counter)
    withdrawn: int = 0
    lead_arrivals: list[int] = field(default_factory=list)
    lead_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Point:
    """Alarms that had sounded by so many arrivals: shares, None where there is nothing to share."""

    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(slots=True)
class Evaluation:
    """Alarms by detector over `episodes`, of which `bursts` were bursts.

    An episode is a run of arrivals on one prefix without a pause of more than a minute.
    `unfinished` ones are left out: the trace ends before it is known what became of them.
    """

    alarms: dict[str, Alarms]
    arrivals: int = 0
    short: int = 0
    episodes: int = 0
    bursts: int = 0
    unfinished: int = 0

    def point(self, name: str, seen: int) -> Point:
        """Return how good the alarms were that had sounded by the arrival numbered `seen`."""
        found = self.alarms[name]
        true = sum(count for at, count in found.true.items() if at <= seen)
        false = found.withdrawn + sum(count for at, count in found.false.items() if at <= seen)
        precision = true / (true + false) if true + false else None
        recall = true / self.bursts if self.bursts else None
        f1 = 2.0 * true / (true + false + self.bursts) if self.bursts else None
        return Point(precision, recall, f1)

    def lead(self, name: str) -> tuple[float, float] | None:
        """Return the medians of arrivals and of seconds that true alarms were ahead by."""
        found = self.alarms[name]
        if not found.lead_s:
            return None
        return float(median(found.lead_arrivals)), median(found.lead_s)


def evaluate(
    windows: Iterable[Trace],
    models: Mapping[str, Mapping[float, Learner]],
    kind: BurstKind,
    *,
    boundary_tokens: int,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Go through `windows` once with `models`, which learn on the way, and the rules beside them.

    Prefixes are forgotten at the end of a window, what the models know is not.

    Raises
    ------
    ConfigError
        If a model has no forecast for the time of a burst.
    """
    for name, by_horizon in models.items():
        if kind.within_s not in by_horizon:
            known = ", ".join(f"{horizon_s:g}" for horizon_s in by_horizon)
            raise ConfigError(f"{name} forecasts {known} s ahead, and not {kind.within_s:g}")
    outcome = Evaluation({name: Alarms() for name in (*models, *RULES)})
    for window in windows:
        forecasters = {
            name: Forecaster(by_horizon, boundary_tokens=boundary_tokens)
            for name, by_horizon in models.items()
        }
        _Window(outcome, forecasters, kind, boundary_tokens).run(window, on_rows)
    return outcome


class _Episode:
    """A run of arrivals on one prefix, as far as it has come."""

    __slots__ = ("complete_s", "fired", "first_s", "last_s", "recent_s", "seen", "to_come")

    def __init__(self, recent: int) -> None:
        self.seen = 0
        self.first_s = self.last_s = 0.0
        self.recent_s: deque[float] = deque(maxlen=recent)
        self.complete_s: float | None = None
        self.fired: dict[str, tuple[int, float]] = {}
        self.to_come: Counter[str] = Counter()

    def add(self, at_s: float, kind: BurstKind) -> None:
        """Count an arrival, also among those that alarms were ahead of."""
        if not self.seen:
            self.first_s = at_s
        self.seen += 1
        self.last_s = at_s
        self.recent_s.append(at_s)
        if self.complete_s is None and self.within(kind.more + 1, kind.within_s):
            self.complete_s = at_s
        for name, (_, fired_s) in self.fired.items():
            if at_s <= max(fired_s, self.first_s) + kind.within_s:
                self.to_come[name] += 1

    def within(self, count: int, seconds: float) -> bool:
        """Return whether the latest `count` arrivals came within so many seconds."""
        times_s = self.recent_s
        return len(times_s) >= count and times_s[-1] - times_s[-count] <= seconds


class _Window:
    """The way through one window."""

    def __init__(
        self,
        outcome: Evaluation,
        forecasters: Mapping[str, Forecaster],
        kind: BurstKind,
        boundary_tokens: int,
    ) -> None:
        self._outcome = outcome
        self._forecasters = forecasters
        self._kind = kind
        self._boundary_tokens = boundary_tokens
        self._recent = max(kind.more + 1, *(rule.count for rule in RULES.values()))
        self._episodes: OrderedDict[int, _Episode] = OrderedDict()
        self._ahead: dict[str, dict[int, float]] = {name: {} for name in forecasters}
        self._tick_s = 0.0

    def run(self, window: Trace, on_rows: Callable[[int], None]) -> None:
        at_s, number = 0.0, 0
        for number, arrival in enumerate(window, start=1):
            at_s = max(at_s, arrival.at_s)
            self._look_ahead(at_s)
            self._end_episodes(at_s)
            self._take(arrival, at_s)
            if number % REPORT_EVERY == 0:
                on_rows(REPORT_EVERY)
        self._outcome.arrivals += number
        on_rows(number % REPORT_EVERY)
        for episode in self._episodes.values():
            self._end(episode, finished=episode.complete_s is not None)

    def _look_ahead(self, at_s: float) -> None:
        """Open and withdraw alarms for bursts that have not begun, up to `at_s`."""
        while self._tick_s < at_s:
            self._end_episodes(self._tick_s)
            for name, forecaster in self._forecasters.items():
                forecaster.advance(self._tick_s)
                due = forecaster.due(self._tick_s, self._kind.within_s)
                self._tend(name, due)
            self._tick_s += TICK_S

    def _tend(self, name: str, due: Sequence[Forecast]) -> None:
        within_s, opened_s = self._kind.within_s, self._ahead[name]
        chances = {}
        for one in due:
            chance = chances[one.prefix.key] = one.returns[within_s]
            large = one.mean(within_s) >= chance * self._kind.more
            if chance >= AHEAD_CHANCE and large and one.prefix.key not in self._episodes:
                opened_s.setdefault(one.prefix.key, self._tick_s)
        for key in list(opened_s):
            if chances.get(key, 0.0) < AHEAD_CHANCE / 2.0:
                del opened_s[key]
                self._outcome.alarms[name].withdrawn += 1

    def _take(self, arrival: Arrival, at_s: float) -> None:
        for forecaster in self._forecasters.values():
            forecaster.observe(arrival)
        blocks = max(1, self._boundary_tokens // arrival.block_tokens)
        if len(arrival.chain) < blocks:
            self._outcome.short += 1
            return
        key = arrival.chain[blocks - 1]
        episode = self._episodes.pop(key, None)
        if episode is None:
            episode = _Episode(self._recent)
            for name, opened_s in self._ahead.items():
                if key in opened_s:
                    episode.fired[name] = (0, opened_s.pop(key))
        self._episodes[key] = episode
        episode.add(at_s, self._kind)
        for name, rule in RULES.items():
            if name not in episode.fired and episode.within(rule.count, rule.window_s):
                episode.fired[name] = (episode.seen, at_s)
        for name, forecaster in self._forecasters.items():
            if name not in episode.fired and self._expects(forecaster, key, at_s):
                episode.fired[name] = (episode.seen, at_s)

    def _expects(self, forecaster: Forecaster, key: int, at_s: float) -> bool:
        told = forecaster.forecast(key, at_s)
        if told is None:
            return False
        return told.counts[self._kind.within_s].at_least(self._kind.more) >= self._kind.threshold

    def _end_episodes(self, at_s: float) -> None:
        while self._episodes:
            key, episode = next(iter(self._episodes.items()))
            if at_s - episode.last_s <= BURST_SILENCE_S:
                return
            del self._episodes[key]
            self._end(episode, finished=True)

    def _end(self, episode: _Episode, *, finished: bool) -> None:
        outcome = self._outcome
        if not finished:
            outcome.unfinished += 1
            return
        outcome.episodes += 1
        outcome.bursts += episode.complete_s is not None
        for name, (seen, fired_s) in episode.fired.items():
            alarms = outcome.alarms[name]
            if episode.complete_s is None:
                alarms.false[seen] += 1
                continue
            alarms.true[seen] += 1
            alarms.lead_arrivals.append(episode.to_come[name])
            alarms.lead_s.append(episode.complete_s - fired_s)
