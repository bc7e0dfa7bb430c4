"""Family `mixed`: all the others in one window, with every kind of burst over ordinary traffic."""

from dataclasses import dataclass, replace

from btb.traces.workloads.agents import Agents, agents
from btb.traces.workloads.base import Draft
from btb.traces.workloads.fanout import Fanout, fanout
from btb.traces.workloads.ordinary import Ordinary, ordinary
from btb.traces.workloads.ramp import Ramp, ramp
from btb.traces.workloads.recurring import Recurring, recurring
from btb.traces.workloads.require import require, require_share


@dataclass(frozen=True, slots=True)
class Mixed:
    """Parameters of `mixed`. A day with the defaults is about 125,000 requests.

    Parameters
    ----------
    duration_s
        Length of the window.
    chats_per_s, system_prompts, daily_swing
        Conversations, see `Ordinary`.
    jobs, misses, stopping
        Recurring jobs, see `Recurring`. Their period is 5 to 30 minutes.
    parents_per_s
        Agents that may fan out, see `Agents`.
    ramps_per_hour
        Prefixes whose rate rises to 1 a second in 10 minutes, see `Ramp`. None where the window
        is shorter than 15 minutes.
    fanouts_per_hour
        Bursts out of the blue: a third of each size in `FANOUT_SIZES`, of 16,384 tokens, in 20 s.
    decoys_per_hour
        Prefixes of that shape that come once or (half of them) twice and never again.
    """

    duration_s: float = 3_600.0
    chats_per_s: float = 0.15
    system_prompts: int = 8
    daily_swing: float = 0.5
    jobs: int = 8
    misses: float = 0.1
    stopping: float = 0.2
    parents_per_s: float = 0.02
    ramps_per_hour: float = 1.0
    fanouts_per_hour: float = 3.0
    decoys_per_hour: float = 40.0

    def __post_init__(self) -> None:
        require(self, positive="duration_s system_prompts")
        require(self, not_negative="chats_per_s jobs parents_per_s ramps_per_hour")
        require(self, not_negative="fanouts_per_hour decoys_per_hour")
        require_share(self, "daily_swing misses stopping")


FANOUT_SIZES = (40, 100, 250)
"""Requests in a burst out of the blue."""

LONE = Fanout(bursts=0, span_s=20.0, first_s=0.0, prefix_tokens=16_384, output_tokens=32, decoys=0)
"""Shape of bursts out of the blue and of decoys."""

RAMP_S = 900.0
"""Shortest slot of a ramp that rises for 10 minutes."""


def mixed(parameters: Mixed, draft: Draft) -> None:
    """Add all families."""
    draft.end_s = parameters.duration_s
    _add_ordinary(parameters, draft)
    jobs = Recurring(
        duration_s=parameters.duration_s,
        jobs=parameters.jobs,
        misses=parameters.misses,
        stopping=parameters.stopping,
        background_chats_per_s=0.0,
    )
    recurring(jobs, draft)
    agents(Agents(duration_s=parameters.duration_s, parents_per_s=parameters.parents_per_s), draft)
    _add_ramps(parameters, draft)
    _add_fanouts(parameters, draft)


def _add_ordinary(parameters: Mixed, draft: Draft) -> None:
    chats = Ordinary(
        duration_s=parameters.duration_s,
        chats_per_s=parameters.chats_per_s,
        system_prompts=parameters.system_prompts,
        daily_swing=parameters.daily_swing,
    )
    ordinary(chats, draft)


def _add_ramps(parameters: Mixed, draft: Draft) -> None:
    count = _count(parameters.ramps_per_hour, parameters)
    count = min(count, int(parameters.duration_s / RAMP_S))
    if count:
        slot_s = parameters.duration_s / count
        ramps = Ramp(
            duration_s=parameters.duration_s,
            ramps=count,
            first_s=draft.rng.uniform(0.0, slot_s - RAMP_S),
            peak_rps=1.0,
            background_chats_per_s=0.0,
        )
        ramp(ramps, draft)


def _add_fanouts(parameters: Mixed, draft: Draft) -> None:
    bursts = _count(parameters.fanouts_per_hour, parameters)
    for k, size in enumerate(FANOUT_SIZES):
        count = (bursts + k) // len(FANOUT_SIZES)
        if count == 0:
            continue
        # Half a slot of jitter about the middle of its slot puts a burst anywhere in it.
        half_slot_s = parameters.duration_s / count / 2.0
        shape = replace(
            LONE,
            duration_s=parameters.duration_s + half_slot_s,
            bursts=count,
            size=size,
            first_s=half_slot_s,
            jitter_s=half_slot_s,
        )
        fanout(shape, draft)
    decoys = _count(parameters.decoys_per_hour, parameters)
    for repeats in (1, 2):
        shape = replace(LONE, duration_s=parameters.duration_s, decoys=decoys // 2)
        fanout(replace(shape, decoy_repeats=repeats), draft)


def _count(per_hour: float, parameters: Mixed) -> int:
    return round(per_hour * parameters.duration_s / 3_600.0)
