"""One file a workload family: a function of parameters and chance, without I/O."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from btb.traces.workloads.agents import Agents, agents
from btb.traces.workloads.base import Draft
from btb.traces.workloads.fanout import Fanout, fanout
from btb.traces.workloads.mixed import Mixed, mixed
from btb.traces.workloads.ordinary import Ordinary, ordinary
from btb.traces.workloads.ramp import Ramp, ramp
from btb.traces.workloads.recurring import Recurring, recurring


@dataclass(frozen=True, slots=True)
class Family:
    """A workload family: the type of its parameters, and what adds its requests to a draft."""

    parameters: type[Any]
    add: Callable[[Any, Draft], None]


FAMILIES: dict[str, Family] = {
    "fanout": Family(Fanout, fanout),
    "ramp": Family(Ramp, ramp),
    "recurring": Family(Recurring, recurring),
    "agents": Family(Agents, agents),
    "ordinary": Family(Ordinary, ordinary),
    "mixed": Family(Mixed, mixed),
}
"""Families by name. One file and one line here make a new one."""
