"""What the service answers: response bodies, and how a forecast or a decision becomes one."""

from math import isfinite

from pydantic import BaseModel, Field

from btb.service.hashes import show_hash
from btb.service.orders import Order
from forecasting.forecast import Forecast

LOW, HIGH = 0.1, 0.9
"""Ends of the interval that is shown: 80 % of what may come lies in it."""


class HorizonAnswer(BaseModel):
    """How many more arrivals within `horizon_s`: mean, 80 % interval, and how likely some are."""

    horizon_s: float
    mean: float
    low: int
    high: int
    at_least_1: float
    at_least_20: float


class ForecastAnswer(BaseModel):
    """The forecast for one prefix, named by the hash of its last block."""

    prefix: str = Field(examples=["0x000000000000001f"])
    blocks: int
    tokens: int
    seen: int
    at_s: float
    horizons: list[HorizonAnswer]


class ForecastsAnswer(BaseModel):
    """The prefixes that were asked for most of late, hottest first."""

    at_s: float
    tenant: str
    forecasts: list[ForecastAnswer]


class AcceptedAnswer(BaseModel):
    """How many arrivals were taken. They are in the log, if one is kept."""

    accepted: int
    logged: bool


class RankedAnswer(BaseModel):
    """A replica that the request may go to, as it was known when this was decided."""

    replica: str
    requests: int
    queue_s: float
    resident_blocks: int


class CopyAnswer(BaseModel):
    """A copy to be made: the first `blocks` blocks of the chain, named by the last one's hash.

    `value_s` is the time it is expected to save, over all requests; `cost_s` what it is expected to
    cost others. No deadline is null.
    """

    copy_id: str
    prefix: str
    blocks: int
    tokens: int
    source: str
    target: str
    size_bytes: int
    deadline_s: float | None
    value_s: float
    cost_s: float
    reason: str


class RouteAnswer(BaseModel):
    """Where a request goes, best first, and what to copy; `forecasts` from shallow to deep.

    The first replica counts as taken, unless `dry_run`. `expected_ttft_s` is for it. `priority` is
    for engines that serve by it, lowest first, as vLLM with `--scheduling-policy priority`.
    """

    request_id: str
    at_s: float
    replicas: list[RankedAnswer]
    expected_ttft_s: float | None = None
    priority: float
    reason: str
    copies: list[CopyAnswer]
    forecasts: list[ForecastAnswer]
    dry_run: bool


class OutcomeAnswer(BaseModel):
    """What was done with an outcome: `unknown_copies` were never ordered, done before, or over."""

    released: bool
    copies_done: int
    unknown_copies: list[str]


class ReplicaAnswer(BaseModel):
    """A replica as the service knows it. `requests` counts those that came from elsewhere, too."""

    replica: str
    setup: str
    requests: int
    routed: int
    queue_s: float
    free_bytes: float
    resident_blocks: int


class ReplicasAnswer(BaseModel):
    """All replicas, in the order in which they were named."""

    replicas: list[ReplicaAnswer]


class PolicyAnswer(BaseModel):
    """A policy that `btb serve --policy` knows; `current` is the one that decides here."""

    policy: str
    summary: str
    current: bool


class PoliciesAnswer(BaseModel):
    """The policies there are."""

    policies: list[PolicyAnswer]


class ModelAnswer(BaseModel):
    """Models in place: `source` names just these, `traces` the digests of what they learnt from."""

    source: str = Field(examples=["models:/chat/4"])
    learner: str
    boundary_tokens: int
    traces: dict[str, str]


class StandingAnswer(BaseModel):
    """How two models did on the same samples: mean Poisson deviances, and the relative change.

    Below zero the challenger is better; `low` and `high` are the ends of a 95 % interval, null
    where there is only a minute to go by.
    """

    horizon_s: float
    labels: int
    minutes: int
    champion: float
    challenger: float
    change: float
    low: float | None
    high: float | None


class ModelsAnswer(BaseModel):
    """Who forecasts, who does in its shadow, and how that goes.

    `refused` says by role why a newer model was not taken. One in `stride` samples is scored.
    """

    champion: ModelAnswer | None
    challenger: ModelAnswer | None = None
    standings: list[StandingAnswer] = []
    verdict: str = ""
    stride: int = 1
    refused: dict[str, str] = {}


class GuardAnswer(BaseModel):
    """What the guard has seen of the policy; `policies.guarded` explains each field."""

    mode: str
    stopped: bool
    stopped_until_s: float
    stops: int
    why: str
    failures: dict[str, int]
    last_error: str
    held_out: int
    treated: int
    observed: int
    elsewhere: int
    copies: int
    copied_bytes: int


class HealthAnswer(BaseModel):
    """That the service runs."""

    ok: bool = True


class ReadyAnswer(BaseModel):
    """Whether requests are taken: once the log has been read, with replicas or without."""

    ready: bool
    replicas: int
    replayed_arrivals: int
    replayed_bytes: int
    replay_bytes: int
    damaged_rows: int
    now_s: float


def forecast_answer(forecast: Forecast, prefix: int) -> ForecastAnswer:
    """Return `forecast` as an answer; `prefix` is its hash as the tenant knows it."""
    return ForecastAnswer(
        prefix=show_hash(prefix),
        blocks=forecast.prefix.blocks,
        tokens=forecast.prefix.tokens,
        seen=forecast.seen,
        at_s=forecast.at_s,
        horizons=[
            HorizonAnswer(
                horizon_s=horizon_s,
                mean=counts.mean,
                low=counts.quantile(LOW),
                high=counts.quantile(HIGH),
                at_least_1=counts.at_least(1),
                at_least_20=counts.at_least(20),
            )
            for horizon_s, counts in forecast.counts.items()
        ],
    )


def copy_answer(order: Order, prefix: int) -> CopyAnswer:
    """Return an ordered copy as an answer; `prefix` is its hash as the tenant knows it."""
    copy = order.copy
    return CopyAnswer(
        copy_id=order.copy_id,
        prefix=show_hash(prefix),
        blocks=copy.prefix.blocks,
        tokens=copy.prefix.tokens,
        source=copy.source,
        target=copy.target,
        size_bytes=copy.size_bytes,
        deadline_s=copy.deadline_s if isfinite(copy.deadline_s) else None,
        value_s=copy.value_s,
        cost_s=copy.cost_s,
        reason=copy.reason,
    )
