"""Takes new models while the service runs: looks for them, loads them aside, puts them in place."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from btb.config import ModelSettings
from btb.errors import ConfigError
from btb.model_source import challenger_of, look_up
from btb.registry import CHALLENGER
from btb.service.shadow import Shadow
from btb.service.stage import LiveForecaster, Stage
from btb.tracking import load_checkpoint
from btb.training import CHAMPION
from forecasting.features import FEATURE_NAMES
from models.checkpoint import Checkpoint

log = logging.getLogger(__name__)

ROLES = (CHAMPION, CHALLENGER)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Models that are in place, and where they are from: `exact` names just these."""

    exact: str
    stamp: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a look at where models come from brought, by role; a role that isn't named stays.

    `taken` may have None for a challenger, where there is none any more. `unchanged` are those
    that are in place already. `refused` says why, and `stamps` of what state that is, where it is
    known.
    """

    taken: dict[str, Loaded | None] = field(default_factory=dict)
    unchanged: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    stamps: dict[str, str] = field(default_factory=dict)


class ModelKeeper:
    """Has the models of one service, and replaces them when others are found.

    Looking and loading are done in a thread; what is found takes its place in the event loop, in
    one step between two arrivals. What can't be taken is refused, with a line in the log, and
    looked at again once it has changed.

    Parameters
    ----------
    model
        What `btb.tracking.load_checkpoint` takes.
    settings
        How often to look, and who else to look for.

    Attributes
    ----------
    stage
        Where they forecast.
    loaded
        What is in place, by role.
    refusals
        Why something else isn't, by role.
    loads
        How often something was "taken" or "refused", by role and that.

    Raises
    ------
    ConfigError
        If there is no such model or checkpoint. A challenger that is no good is merely refused.
    """

    def __init__(self, model: str, settings: ModelSettings) -> None:
        self.settings = settings
        self.refusals: dict[str, str] = {}
        self.loads: Counter[tuple[str, str]] = Counter()
        self._specs = {CHAMPION: model, CHALLENGER: settings.challenger or challenger_of(model)}
        self._refused_stamps: dict[str, str] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="btb-models")
        self._turn = asyncio.Lock()
        found = look_up(model)
        exact, stamp = (model, "") if found is None else (found.exact, found.stamp)
        self.loaded = {CHAMPION: Loaded(exact, stamp, load_checkpoint(exact))}
        self.stage = Stage(self.champion.models)
        self.take(self.fetch())

    @property
    def champion(self) -> Checkpoint:
        """The models that answer."""
        return self.loaded[CHAMPION].checkpoint

    def make_forecaster(self) -> LiveForecaster:
        """Return a forecaster with these models, whichever they are at the time."""
        return LiveForecaster(self.stage, boundary_tokens=self.champion.boundary_tokens)

    async def watch(self) -> None:
        """Look for new models every so often, until cancelled."""
        while True:
            await asyncio.sleep(self.settings.poll_s)
            try:
                await self.reload(again=False)
            except Exception:  # the next look may do better
                log.exception("no new models could be taken")

    async def reload(self, *, again: bool = True) -> Fetched:
        """Look for new models now, and put them in place.

        `again` tries those once more that were refused or dismissed.
        """
        async with self._turn:
            loop = asyncio.get_running_loop()
            fetched = await loop.run_in_executor(self._thread, lambda: self.fetch(again=again))
            self.take(fetched)
            return fetched

    def aside(self, job: Callable[[], None]) -> None:
        """Have `job` done in the thread that loads; it is not waited for."""
        self._thread.submit(job)

    def close(self) -> None:
        """Let go of the thread; what it is doing is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def fetch(self, *, again: bool = False) -> Fetched:
        """Return what there is that isn't in place, loaded; changes nothing."""
        fetched = Fetched()
        for role in ROLES:
            try:
                self._fetch(role, again, fetched)
            except ConfigError as error:
                fetched.refused[role] = str(error)
            except Exception as error:  # whatever a file holds, what is in place keeps on
                log.debug("can't load %s", self._specs[role], exc_info=True)
                fetched.refused[role] = f"{type(error).__name__}: {error}"
        return fetched

    def take(self, fetched: Fetched) -> None:
        """Put what was fetched in place, in one step, and note what was refused."""
        for role in (*fetched.taken, *fetched.unchanged):
            self.refusals.pop(role, None)
            self._refused_stamps.pop(role, None)
        for role, one in fetched.taken.items():
            if one is None:
                del self.loaded[role]
                log.info("no %s any more", role)
            else:
                self.loaded[role] = one
                self.loads[role, "taken"] += 1
                log.info("%s is now %s", role, one.exact)
        for role, reason in fetched.refused.items():
            self.loads[role, "refused"] += 1
            self._refused_stamps[role] = fetched.stamps.get(role, "")
            if self.refusals.get(role) != reason:
                log.error("refused a %s, what is in place stays: %s", role, reason)
            self.refusals[role] = reason
        if self.loaded.get(CHALLENGER) is self.loaded[CHAMPION]:
            del self.loaded[CHALLENGER]  # it has taken over, whatever its alias still says
        if fetched.taken:
            self.stage.put(self.champion.models, self._shadow())

    def _fetch(self, role: str, again: bool, fetched: Fetched) -> None:
        spec, present = self._specs[role], self.loaded.get(role)
        found = look_up(spec) if spec else None
        reigning = fetched.taken.get(CHAMPION) or self.loaded[CHAMPION]
        if found is None or (role == CHALLENGER and found.exact == reigning.exact):
            if role == CHAMPION:
                raise ConfigError(f"{spec} is not there any more")
            if present is None:
                fetched.unchanged.add(role)
            else:
                fetched.taken[role] = None
            return
        dismissed = role == CHALLENGER and self.stage.failure != ""
        if present is not None and found.stamp == present.stamp and not (dismissed and again):
            fetched.unchanged.add(role)
            return
        fetched.stamps[role] = found.stamp
        if found.stamp == self._refused_stamps.get(role) and not again:
            return
        fetched.taken[role] = self._load(found.exact, found.stamp)

    def _load(self, exact: str, stamp: str) -> Loaded:
        """Return the models that `exact` names; the very ones in the shadow, if it is they."""
        rival = self.loaded.get(CHALLENGER)
        same = rival is not None and (rival.exact, rival.stamp) == (exact, stamp)
        if rival is not None and same and self.stage.shadow is not None:
            return rival
        checkpoint = load_checkpoint(exact)
        check_fit(checkpoint, self.champion)
        return Loaded(exact, stamp, checkpoint)

    def _shadow(self) -> Shadow | None:
        rival = self.loaded.get(CHALLENGER)
        if rival is None:
            return None
        return Shadow(
            self.champion.models,
            rival.checkpoint.models,
            window_s=self.settings.window_s,
            share=self.settings.shadow_share,
        )


def check_fit(checkpoint: Checkpoint, present: Checkpoint) -> None:
    """Make sure that `checkpoint` can take the place of what is there, without a restart.

    Raises
    ------
    ConfigError
        If it is about prefixes of another depth or other horizons, or can't forecast.
    """
    if checkpoint.boundary_tokens != present.boundary_tokens:
        raise ConfigError(
            f"it forecasts prefixes of {checkpoint.boundary_tokens} tokens, and those here have "
            f"{present.boundary_tokens}; restart btb serve to change that"
        )
    if checkpoint.models.keys() != present.models.keys():
        horizons = ", ".join(f"{horizon_s:g}" for horizon_s in checkpoint.models)
        raise ConfigError(f"it forecasts {horizons} s ahead, and others are needed here")
    ones: Mapping[str, float] = dict.fromkeys(FEATURE_NAMES, 1.0)
    for horizon_s, model in checkpoint.models.items():
        try:
            model.predict_one(ones)
        except Exception as error:  # a learner that needs features of another version, say
            kind = type(error).__name__
            raise ConfigError(
                f"it can't forecast {horizon_s:g} s ahead: {kind}: {error}"
            ) from error
