"""Family `recurring`: jobs that come back on a timetable with the same prefix."""

from dataclasses import dataclass

from btb.traces.workloads.base import Context, Draft
from btb.traces.workloads.chance import around, spread, tokens_around
from btb.traces.workloads.ordinary import SIGMA, Ordinary, ordinary
from btb.traces.workloads.require import require, require_share


@dataclass(frozen=True, slots=True)
class Recurring:
    """Parameters of `recurring`.

    Each job has a prefix, a period between `shortest_s` and `longest_s`, a usual size and a span
    of its own. It is due once a period (a timetable: a late start does not delay the next one).

    Parameters
    ----------
    duration_s
        Length of the window.
    jobs
        Number of jobs.
    shortest_s, longest_s
        Range of periods (uniform).
    jitter
        A start lies up to this share of its period before or after the time it is due (uniform).
    misses
        Probability that a job does not run when it is due.
    stopping
        Probability that a job stops for good, at a time of its own within the window.
    size
        Median over jobs of a job's usual number of requests (lognormal, sigma 0.5); a run's own
        number lies around that (sigma 0.2). At least 2.
    span_s
        Median over jobs of the seconds from first to last request of a run (sigma 0.5).
    prefix_tokens
        Shared part: each job's lies between half and twice this (log-uniform).
    suffix_tokens, output_tokens
        Median own part and median answer (lognormal, sigma 0.8).
    background_chats_per_s, background_prompts
        Conversations of family `ordinary` beside it, and how many system prompts they have.
    even
        Evenly spaced requests in a run, in place of Poisson.
    """

    duration_s: float = 7_200.0
    jobs: int = 6
    shortest_s: float = 300.0
    longest_s: float = 1_800.0
    jitter: float = 0.1
    misses: float = 0.1
    stopping: float = 0.0
    size: int = 40
    span_s: float = 10.0
    prefix_tokens: int = 8_192
    suffix_tokens: int = 300
    output_tokens: int = 60
    background_chats_per_s: float = 0.1
    background_prompts: int = 5
    even: bool = False

    def __post_init__(self) -> None:
        require(self, positive="duration_s shortest_s size span_s suffix_tokens output_tokens")
        require(self, positive="background_prompts", not_negative="jobs background_chats_per_s")
        require_share(self, "jitter misses stopping")
        if self.prefix_tokens < 512:
            raise ValueError(f"prefix_tokens must be at least 512, got {self.prefix_tokens!r}")
        if self.longest_s < self.shortest_s:
            raise ValueError(f"longest_s must not be below shortest_s, got {self.longest_s!r}")


@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    prefix: Context
    period_s: float
    size: float
    span_s: float
    stops_s: float


def recurring(parameters: Recurring, draft: Draft) -> None:
    """Add jobs over ordinary traffic. A burst's kind is `recurring/JOB`."""
    draft.end_s = parameters.duration_s
    for number in range(parameters.jobs):
        job = _draw_job(parameters, draft, f"job-{number}")
        due_s = job.period_s * draft.rng.random()
        while due_s < job.stops_s:
            if draft.rng.random() >= parameters.misses:
                _add_run(parameters, draft, job, due_s)
            due_s += job.period_s
    background = Ordinary(
        duration_s=parameters.duration_s,
        chats_per_s=parameters.background_chats_per_s,
        system_prompts=parameters.background_prompts,
    )
    ordinary(background, draft)


def _draw_job(parameters: Recurring, draft: Draft, name: str) -> _Job:
    rng = draft.rng
    stops = rng.random() < parameters.stopping
    return _Job(
        name=name,
        prefix=draft.prompt(round(parameters.prefix_tokens * 2.0 ** rng.uniform(-1.0, 1.0))),
        period_s=rng.uniform(parameters.shortest_s, parameters.longest_s),
        size=around(parameters.size, 0.5, rng),
        span_s=around(parameters.span_s, 0.5, rng),
        stops_s=parameters.duration_s * (rng.random() if stops else 1.0),
    )


def _add_run(parameters: Recurring, draft: Draft, job: _Job, due_s: float) -> None:
    rng = draft.rng
    off_s = job.period_s * parameters.jitter * rng.uniform(-1.0, 1.0)
    size = max(2, round(around(job.size, 0.2, rng)))
    chance = None if parameters.even else rng
    times_s = spread(max(due_s + off_s, 0.0), job.span_s, size, chance)
    draft.mark_burst(times_s, job.prefix, f"recurring/{job.name}")
    for at_s in times_s:
        prompt = draft.extend(job.prefix, tokens_around(parameters.suffix_tokens, SIGMA, rng))
        draft.add(at_s, prompt, tokens_around(parameters.output_tokens, SIGMA, rng))
