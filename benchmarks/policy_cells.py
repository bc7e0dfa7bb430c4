"""Runs what `benchmarks/policies.py` needs: a policy on a window, a setup, a variation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.policy_workloads import describe, window
from btb.controller import Controller
from btb.simulation.bootstrap import quantile
from btb.simulation.causal import simulate_causal
from btb.simulation.cells import Cell, Outcome
from btb.simulation.clairvoyant import simulate_clairvoyant
from btb.simulation.oracle import Oracle
from btb.simulation.parameters import USUAL, CausalParameters
from btb.simulation.plan import clairvoyant_tries, policy_from
from btb.simulation.result import Floats
from btb.simulation.setups import SETUPS
from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from forecasting.forecaster import Forecaster
from models import make_models
from models.counts import Counts

GARBAGE = "garbage"
"""Forecasts that are high where nothing comes, and nothing where something does."""


class Liar(Oracle):
    """Knows what comes, and says the opposite."""

    def forecast_path(self, arrival: Arrival) -> list[Forecast]:
        """Return forecasts of 100 requests where none will come, and of none where some will."""
        return [_turned(one) for one in super().forecast_path(arrival)]

    def due(self, now_s: float, within_s: float) -> list[Forecast]:
        """Return the bursts that are not due: those that begin after `within_s`, as if before."""
        later = super().due(now_s + within_s, 10 * within_s)
        turned = (_turned(one) for one in later)
        return [
            Forecast(one.prefix, now_s, one.seen, one.counts, dict.fromkeys(one.counts, 1.0))
            for one in turned
        ]


def _turned(one: Forecast) -> Forecast:
    counts = {h: Counts(0.0 if count.mean else 100.0) for h, count in one.counts.items()}
    return Forecast(one.prefix, one.at_s, one.seen, counts, one.returns)


@dataclass(frozen=True, slots=True)
class Case:
    """A workload on a setup, as policies meet it; `windows` are the numbers of its windows."""

    workload: str
    setup: str
    windows: tuple[int, ...]
    parameters: CausalParameters = USUAL
    model: str = "river"

    def cells(self, policy: str, limit: int) -> list[Cell]:
        """Return the cells of `policy`, one a window."""
        return [
            Cell(
                digest=f"{describe(self.workload)}, {limit} requests",
                reading=self.workload,
                window=f"{self.workload} {number}",
                index=number,
                setup=self.setup,
                policy=policy,
                code="",
                engine="causal",
                model=self.model,
                seed=number,
                parameters=self.parameters,
            )
            for number in self.windows
        ]


def simulate(shared: Path, limit: int, cell: Cell) -> Outcome:
    """Run one cell from a fresh start; requests that no replica of its setup has room for are out.

    Those are a few of kvct_v8, of more than half a million tokens.
    """
    setup, tries = SETUPS[cell.setup], clairvoyant_tries(cell.policy)
    room_tokens = 0.95 * cell.parameters.varied(setup).kv_capacity_bytes / setup.kv_token_bytes
    arrivals = tuple(
        arrival
        for arrival in window(cell.reading, cell.index, shared, limit).arrivals
        if arrival.input_tokens + arrival.output_tokens <= room_tokens
    )
    if tries is not None:
        found = simulate_clairvoyant(setup, arrivals, cell.parameters, tries=tries, seed=cell.seed)
        return Outcome(found, 0.0)
    policy = policy_from(cell.policy, cell.seed)
    forecaster = Forecaster({})
    if cell.model == GARBAGE:
        forecaster = Liar(arrivals)
    elif policy.horizons_s:
        forecaster = Forecaster(make_models(cell.model, policy.horizons_s))
    controller = Controller(policy, forecaster)
    return Outcome(simulate_causal(setup, controller, arrivals, cell.parameters), 0.0)


@dataclass(slots=True)
class Measured:
    """Outcomes by cell, and what rows ask of them."""

    limit: int
    outcomes: Mapping[Cell, Outcome] = field(default_factory=dict)

    def of(self, case: Case, policy: str) -> list[Outcome]:
        """Return the outcome of each window."""
        return [self.outcomes[cell] for cell in case.cells(policy, self.limit)]

    def ttft_s(self, case: Case, policy: str) -> list[Floats]:
        """Return the TTFTs of each window."""
        return [one.result.ttft_s for one in self.of(case, policy)]

    def mean_s(self, case: Case, policy: str) -> float:
        """Return the mean TTFT over all windows."""
        return float(np.concatenate(self.ttft_s(case, policy)).mean())

    def p95_s(self, case: Case, policy: str) -> float:
        """Return the p95 of TTFT over all windows."""
        return quantile(np.sort(np.concatenate(self.ttft_s(case, policy))), 0.95)

    def moved_bytes(self, case: Case, policy: str) -> float:
        """Return what a policy had moved."""
        return sum(one.result.moved_bytes for one in self.of(case, policy))

    def wasted_share(self, case: Case, policy: str) -> float:
        """Return what was moved for nothing over all KV that was computed."""
        wasted = sum(one.result.wasted_bytes for one in self.of(case, policy))
        computed = sum(
            int(one.result.input_tokens.sum())
            - sum(int(tokens.sum()) for tokens in one.result.hit_tokens.values())
            for one in self.of(case, policy)
        )
        return wasted / (computed * SETUPS[case.setup].kv_token_bytes)


def median_ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the median over windows of one figure over the other."""
    return float(np.median([one / other for one, other in zip(ones, others, strict=True)]))
