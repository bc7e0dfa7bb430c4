"""The models of a running service, for the rest of it: shown, replaced, and scored."""

import asyncio
import logging
from math import isfinite

from btb.contest import Standing, decide, stand
from btb.registry import CHALLENGER
from btb.service.answers import ModelAnswer, ModelsAnswer, StandingAnswer
from btb.service.errors import Refused
from btb.service.keeper import Loaded, ModelKeeper
from btb.service.model_metrics import ModelMetrics
from btb.service.parts import Parts
from btb.service.shadow_log import ShadowLog, write
from btb.training import CHAMPION, nearest_headline

log = logging.getLogger(__name__)


class Models:
    """What `/v1/models` answers, and what goes on behind it. Without a keeper nothing changes."""

    def __init__(self, keeper: ModelKeeper | None, parts: Parts) -> None:
        self.keeper = keeper
        self._log = ShadowLog(keeper) if keeper is not None else None
        if keeper is not None:
            parts.metrics.registry.register(ModelMetrics(keeper))

    async def watch(self) -> None:
        """Look for new models every so often, until cancelled."""
        if self.keeper is not None:
            await self.keeper.watch()

    def tick(self, now_s: float) -> None:
        """Have a serving window that is over written down."""
        if self.keeper is None or self._log is None:
            return
        entry = self._log.tick(now_s)
        if entry is not None:
            self.keeper.aside(lambda: write(entry))

    def close(self) -> None:
        """Let go of the thread that loads and writes."""
        if self.keeper is not None:
            self.keeper.close()

    async def reload(self) -> ModelsAnswer:
        """Take what is new where the present models are from, and show what is in place then.

        Raises
        ------
        Refused
            If something is there and can't be taken. What is in place stays.
        """
        if self.keeper is not None:
            fetched = await self.keeper.reload()
            if fetched.refused:
                told = [f"the {role} stays: {reason}" for role, reason in fetched.refused.items()]
                raise Refused(409, "; ".join(told), cause="model")
        return await self.show()

    async def show(self) -> ModelsAnswer:
        """Return what is in place, and how the challenger does."""
        keeper = self.keeper
        if keeper is None:
            return ModelsAnswer(champion=None)
        loaded, refused = dict(keeper.loaded), dict(keeper.refusals)
        if keeper.stage.failure:
            refused[CHALLENGER] = f"it failed and was dismissed: {keeper.stage.failure}"
        answer = ModelsAnswer(champion=_model(loaded[CHAMPION]), refused=refused)
        shadow = keeper.stage.shadow
        if shadow is None:
            return answer
        sums = {horizon_s: contest.sums() for horizon_s, contest in shadow.contests.items()}
        # Aside: an interval over hours takes a tenth of a second.
        standings = await asyncio.to_thread(lambda: {h: stand(one) for h, one in sums.items()})
        answer.challenger = _model(loaded[CHALLENGER])
        answer.stride = shadow.stride
        answer.standings = [_standing(h, one) for h, one in standings.items() if one is not None]
        answer.verdict = decide(standings, nearest_headline(standings)).reason
        return answer


def _model(one: Loaded) -> ModelAnswer:
    return ModelAnswer(
        source=one.exact,
        learner=one.checkpoint.name,
        boundary_tokens=one.checkpoint.boundary_tokens,
        traces=dict(one.checkpoint.traces),
    )


def _standing(horizon_s: float, one: Standing) -> StandingAnswer:
    low, high = (end if isfinite(end) else None for end in one.change_ci)
    return StandingAnswer(
        horizon_s=horizon_s,
        labels=one.labels,
        minutes=one.blocks,
        champion=one.champion,
        challenger=one.challenger,
        change=one.change,
        low=low,
        high=high,
    )
