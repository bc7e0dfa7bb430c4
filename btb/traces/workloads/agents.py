"""Family `agents`: a parent request, and after a while children that share its whole context."""

from dataclasses import dataclass

from btb.traces.workloads.base import Context, Draft
from btb.traces.workloads.chance import around, poisson, spread, tokens_around, turns
from btb.traces.workloads.ordinary import SIGMA
from btb.traces.workloads.require import require, require_block, require_share


@dataclass(frozen=True, slots=True)
class Agents:
    """Parameters of `agents`.

    A parent begins with one of `templates` prefixes (tools and system prompt of its harness), then
    has a task of its own. What can be learnt: even-numbered templates are orchestrators, whose
    parents fan out with probability `fanning`; the others' do so with probability `stray`. Each
    template also has a usual number of children and a usual delay. So a parent's template, the
    first blocks of its chain, tells how likely, how many and how soon, before the first child.

    Parameters
    ----------
    duration_s
        Length of the window.
    parents_per_s
        Parent requests in a second.
    templates, template_tokens
        Number of templates, and tokens in each.
    fanning, stray
        Probability that a parent fans out: of an orchestrator's template, and of another.
    children
        Median over templates of the usual number of children (lognormal, sigma 0.4); a parent's
        own number lies around that (sigma 0.2). At least 2.
    delay_s
        Median over templates of the usual time from parent to first child (sigma 0.5); a parent's
        own lies around that (sigma 0.3).
    span_s
        Seconds in which the children come.
    task_tokens, child_tokens, output_tokens
        Median length of a parent's task, of what a child adds, and of an answer (sigma 0.8).
    child_turns
        Mean number of requests of a child, and of a parent that does not fan out (geometric).
    think_s
        Median time between the turns of one agent (sigma 0.8).
    """

    duration_s: float = 1_800.0
    parents_per_s: float = 0.1
    templates: int = 6
    template_tokens: int = 2_048
    fanning: float = 0.8
    stray: float = 0.05
    children: int = 8
    delay_s: float = 8.0
    span_s: float = 2.0
    task_tokens: int = 6_000
    child_tokens: int = 300
    output_tokens: int = 200
    child_turns: float = 2.0
    think_s: float = 6.0

    def __post_init__(self) -> None:
        require(self, positive="duration_s templates children delay_s task_tokens child_tokens")
        require(self, positive="output_tokens think_s", not_negative="parents_per_s span_s")
        require_block(self, "template_tokens")
        require_share(self, "fanning stray")
        if self.child_turns < 1.0:
            raise ValueError(f"child_turns must be at least 1, got {self.child_turns!r}")


@dataclass(frozen=True, slots=True)
class _Template:
    prefix: Context
    fanning: float
    children: float
    delay_s: float


def agents(parameters: Agents, draft: Draft) -> None:
    """Add parents and their children. A burst's prefix is its parent's whole prompt."""
    draft.end_s = parameters.duration_s
    rng = draft.rng
    templates = [_draw_template(parameters, draft, k) for k in range(parameters.templates)]
    parents_s = poisson(parameters.parents_per_s, 0.0, parameters.duration_s, rng)
    for number, at_s in enumerate(parents_s):
        _add_parent(parameters, draft, rng.choice(templates), at_s, f"agent-{number}")


def _draw_template(parameters: Agents, draft: Draft, number: int) -> _Template:
    return _Template(
        prefix=draft.prompt(parameters.template_tokens),
        fanning=parameters.stray if number % 2 else parameters.fanning,
        children=around(parameters.children, 0.4, draft.rng),
        delay_s=around(parameters.delay_s, 0.5, draft.rng),
    )


def _add_parent(
    parameters: Agents, draft: Draft, template: _Template, at_s: float, session: str
) -> None:
    rng = draft.rng
    parent = draft.extend(template.prefix, tokens_around(parameters.task_tokens, SIGMA, rng))
    if rng.random() >= template.fanning:
        _work(parameters, draft, at_s, parent, session)
        return
    draft.add(at_s, parent, tokens_around(parameters.output_tokens, SIGMA, rng), session)
    first_s = at_s + around(template.delay_s, 0.3, rng)
    count = max(2, round(around(template.children, 0.2, rng)))
    times_s = spread(first_s, parameters.span_s, count, rng)
    draft.mark_burst(times_s, parent, "agents")
    for child, child_s in enumerate(times_s):
        prompt = draft.extend(parent, tokens_around(parameters.child_tokens, SIGMA, rng))
        _work(parameters, draft, child_s, prompt, f"{session}/{child}")


def _work(parameters: Agents, draft: Draft, at_s: float, prompt: Context, session: str) -> None:
    rng = draft.rng
    for _ in range(turns(parameters.child_turns, rng)):
        answer = tokens_around(parameters.output_tokens, SIGMA, rng)
        draft.add(at_s, prompt, answer, session)
        result = tokens_around(parameters.child_tokens, SIGMA, rng)
        prompt = draft.extend(prompt, answer + result)
        at_s += around(parameters.think_s, SIGMA, rng)
