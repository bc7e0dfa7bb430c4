"""Keeps in MLflow how the challenger did in the shadow, one run a serving window."""

import logging
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from btb import registry, tracking
from btb.contest import Standing, Sums, Verdict, decide, stand
from btb.errors import ConfigError
from btb.registry import CHALLENGER, SHADOW
from btb.service.keeper import ModelKeeper
from btb.service.shadow import Shadow
from btb.training import CHAMPION, nearest_headline

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

EXPERIMENT = "btb serve"

LAG_S = 2.0
"""Beyond the longest horizon: when labels of a window have come, at the latest."""

ALL = range(2**62)
"""Every window."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to be kept of a contest: losses by horizon, in some window and so far."""

    champion: str
    challenger: str
    window: Mapping[float, Sums]
    so_far: Mapping[float, Sums]


class ShadowLog:
    """Watches the contests of one service, and writes down each window that has ended.

    Models that are not from the registry are left out: there is nowhere to note what came of them.
    """

    def __init__(self, keeper: ModelKeeper) -> None:
        self._keeper = keeper
        self._shadow: Shadow | None = None
        self._names = ("", "")
        self._written = -1

    def tick(self, now_s: float) -> Entry | None:
        """Return what is to be written by now, if anything: a window is over, or the contest is."""
        keeper, shadow = self._keeper, self._keeper.stage.shadow
        lag_s = LAG_S + max(keeper.champion.models)
        ended = int((now_s - lag_s) // keeper.settings.window_s) - 1
        entry = None
        if shadow is not self._shadow:
            entry = self._entry(range(self._written + 1, ALL.stop))
            self._shadow, self._written = shadow, ended
            self._names = (keeper.loaded[CHAMPION].exact, "")
            if shadow is not None:
                self._names = (self._names[0], keeper.loaded[CHALLENGER].exact)
        elif ended > self._written:
            entry = self._entry(range(self._written + 1, ended + 1))
            self._written = ended
        return entry

    def _entry(self, windows: Container[int]) -> Entry | None:
        registered = all(name.startswith("models:/") for name in self._names)
        if self._shadow is None or not registered or not self._keeper.settings.track:
            return None
        contests = self._shadow.contests
        window = {h: contest.sums(windows) for h, contest in contests.items()}
        if not any(len(sums) for sums in window.values()):
            return None
        return Entry(*self._names, window, {h: contest.sums() for h, contest in contests.items()})


def write(entry: Entry) -> None:
    """Keep `entry` in MLflow, and with the challenger's version what it amounts to so far, if much.

    What can't be kept is reported in the log, and nothing else.
    """
    so_far = {horizon_s: stand(sums) for horizon_s, sums in entry.so_far.items()}
    headline = so_far[nearest_headline(so_far)]
    title = f"{_short(entry.challenger)} in the shadow of {_short(entry.champion)}"
    params = {"champion": entry.champion, "challenger": entry.challenger}
    try:
        with tracking.experiment(EXPERIMENT).run(title, params=params) as run:
            for horizon_s, sums in entry.window.items():
                run.metrics(_metrics(horizon_s, stand(sums)))
            if headline is not None and headline.enough:
                _testify(run.mlflow, entry, decide(so_far, nearest_headline(so_far)))
    except ConfigError as error:
        log.error("a window of %s is not in MLflow: %s", title, error)
    except Exception:  # MLflow's, of many kinds
        log.exception("a window of %s is not in MLflow", title)


def _testify(mlflow: "MlflowClient", entry: Entry, verdict: Verdict) -> None:
    name, _, number = _short(entry.challenger).rpartition("/")
    one = registry.find(mlflow, name, number)
    if one is not None:
        against = entry.champion.rpartition("/")[2]
        told = registry.Evidence(against, verdict.better, verdict.reason)
        registry.testify(mlflow, one, SHADOW, told)


def _short(spec: str) -> str:
    return spec.removeprefix("models:/")


def _metrics(horizon_s: float, standing: Standing | None) -> dict[str, float]:
    if standing is None:
        return {}
    at = f"_{horizon_s:g}s"
    return {
        f"champion_deviance{at}": standing.champion,
        f"challenger_deviance{at}": standing.challenger,
        f"change{at}": standing.change,
        f"change_low{at}": standing.change_ci[0],
        f"change_high{at}": standing.change_ci[1],
        f"labels{at}": float(standing.labels),
        f"minutes{at}": float(standing.blocks),
    }
