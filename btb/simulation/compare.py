"""The cells of a comparison, run and kept; from outcomes to a comparison."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from btb.controller import Controller
from btb.simulation.causal import simulate_causal
from btb.simulation.cells import (
    SUFFIX,
    Cell,
    Outcome,
    cell_digest,
    digest_sources,
    load_outcome,
    save_outcome,
)
from btb.simulation.clairvoyant import simulate_clairvoyant
from btb.simulation.engines import ENGINES
from btb.simulation.parameters import USUAL
from btb.simulation.plan import Plan, Windows, clairvoyant_tries, policy_from, split_spec
from btb.simulation.pool import work_off
from btb.simulation.setups import SETUPS
from btb.simulation.summary import Comparison
from btb.traces import ReadReport, Trace
from forecasting.arrival import Arrival
from forecasting.forecaster import Forecaster
from models import checkpoint


def simulate_cell(windows: Windows, models: str, cell: Cell) -> Outcome:
    """Run one cell from a fresh start: its own policy, forecaster and cluster.

    `models` is from `starting_models`. The clock is that of the process's CPU, around the engine
    and all that it calls.
    """
    arrivals, notes = _read_window(windows, cell.index)
    setup, engine, tries = SETUPS[cell.setup], ENGINES[cell.engine], clairvoyant_tries(cell.policy)
    started_s = time.process_time()
    if tries is not None:
        result = simulate_clairvoyant(setup, arrivals, cell.parameters, tries=tries, seed=cell.seed)
        return Outcome(result, time.process_time() - started_s, notes)
    policy = policy_from(cell.policy, cell.seed, engine.policies)
    controller = Controller(policy, _forecaster(models, policy.horizons_s))
    started_s = time.process_time()
    if cell.engine == "causal":
        result = simulate_causal(setup, controller, arrivals, cell.parameters)
    else:
        result = engine.simulate(setup, controller, arrivals)
    return Outcome(result, time.process_time() - started_s, notes)


def stored_outcomes(cells: Iterable[Cell], store: Path) -> dict[Cell, Outcome]:
    """Return what earlier runs left in `store` of `cells`, with the very same code."""
    sources = digest_sources()
    found = {cell: load_outcome(_place(store, cell, sources)) for cell in cells}
    return {cell: outcome for cell, outcome in found.items() if outcome is not None}


def run_cells(
    cells: Sequence[Cell],
    simulate: Callable[[Cell], Outcome],
    *,
    jobs: int = 1,
    store: Path | None = None,
    on_done: Callable[[], None] = lambda: None,
) -> dict[Cell, Outcome]:
    """Return the outcome of each of `cells`, run on up to `jobs` processes.

    Each one is in `store` as soon as it is done, so what is finished is kept when this is stopped.
    `simulate` must be a function that another process can import, or a `partial` of one.
    """
    sources = digest_sources() if store else ""
    if store:
        store.mkdir(parents=True, exist_ok=True)
    done: dict[Cell, Outcome] = {}
    for cell, outcome in work_off(simulate, cells, jobs):
        if store:
            save_outcome(_place(store, cell, sources), outcome)
        done[cell] = outcome
        on_done()
    return done


def assumptions_of(plan: Plan) -> tuple[str, ...]:
    """Return what the engine takes for granted, and which policies it runs in place of others."""
    engine = ENGINES[plan.engine]
    stand_ins = (
        f"{spec} runs as {engine.policies[split_spec(spec)[0]]}, as this engine's authors had it."
        for spec in plan.policies
        if split_spec(spec)[0] in engine.policies
    )
    return (*engine.assumptions, *stand_ins)


def collect(
    plan: Plan, trace: str, cells: Sequence[Cell], outcomes: Mapping[Cell, Outcome]
) -> Comparison:
    """Return the outcomes by setup and policy, each with its windows in order."""
    ordered = sorted(cells, key=lambda cell: cell.index)
    digests = list({cell.index: cell.digest for cell in ordered}.values())
    joined = sha256(" ".join(digests).encode()).hexdigest()
    return Comparison(
        engine=plan.engine,
        trace=trace,
        digest=digests[0] if len(digests) == 1 else joined,
        windows=tuple({cell.index: cell.window for cell in ordered}.values()),
        setups=plan.setups,
        policies=plan.policies,
        model=plan.model,
        seed=plan.seed,
        varied=_varied(plan),
        runs={
            (setup, policy): tuple(
                outcomes[cell] for cell in ordered if (cell.setup, cell.policy) == (setup, policy)
            )
            for setup in plan.setups
            for policy in plan.policies
        },
    )


def _varied(plan: Plan) -> dict[str, float]:
    usual, given = asdict(USUAL), asdict(plan.parameters)
    return {name: value for name, value in given.items() if value != usual[name]}


def _forecaster(models: str, horizons_s: Sequence[float]) -> Forecaster:
    """Return a forecaster for `horizons_s` only: what nobody looks at need not be learnt."""
    if not horizons_s:
        return Forecaster({})
    start = checkpoint.from_json(models)
    kept = {at_s: model for at_s, model in start.models.items() if at_s in horizons_s}
    return Forecaster(kept, boundary_tokens=start.boundary_tokens)


@lru_cache(maxsize=1)
def _read_window(windows: Windows, index: int) -> tuple[tuple[Arrival, ...], tuple[str, ...]]:
    """Return the arrivals of a window; a worker's next cell is most often of the same one."""
    window = _open_windows(windows)[index]
    arrivals = tuple(window)
    return arrivals, _notes(window.name, window.report)


@lru_cache(maxsize=1)
def _open_windows(windows: Windows) -> list[Trace]:
    return windows.open()


def _notes(name: str, report: ReadReport) -> tuple[str, ...]:
    notes = list(report.notes)
    if report.bad:
        shown = report.first_bad[0]
        notes.append(f"{name}: {_rows(report.bad)} couldn't be read, left out; the first: {shown}")
    if report.late:
        notes.append(f"{name}: {_rows(report.late)} left out, too late to be sorted in")
    if report.reordered:
        notes.append(f"{name}: {_rows(report.reordered)} came out of order, and were sorted in")
    return tuple(notes)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _place(store: Path, cell: Cell, sources: str) -> Path:
    return store / f"{cell_digest(cell, sources)}{SUFFIX}"
