"""`btb compare`: policies side by side on the same arrivals."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from btb.commands.compare_log import log_comparison
from btb.commands.compare_tables import print_comparison
from btb.commands.options import BlockTokens, Format, JsonTo, MaxBadShare, StartSpread, Traces
from btb.commands.output import write_json
from btb.errors import ConfigError, UserError
from btb.simulation import clairvoyant
from btb.simulation.bounds import Bound, bound_sentence, lower_bound, regrets
from btb.simulation.cells import Cell, Outcome
from btb.simulation.compare import (
    assumptions_of,
    collect,
    run_cells,
    simulate_cell,
    stored_outcomes,
)
from btb.simulation.json_report import to_json
from btb.simulation.machine import describe_machine
from btb.simulation.parameters import CausalParameters
from btb.simulation.plan import (
    ARTICLE_SEED,
    Plan,
    Windows,
    clairvoyant_tries,
    plan_cells,
    starting_models,
)
from btb.simulation.setups import ARTICLE_SETUPS, SETUPS
from btb.simulation.summary import Comparison, differences, figures
from btb.traces import ReaderOptions
from models import DEFAULT

CONSOLE = Console(stderr=True)

POLICIES = ["cache_aware", "early_rdma", "btb"]


def compare(
    traces: Traces,
    policy: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="NAME, module:Class, or NAME:KEY=VALUE,...; the first is the baseline.",
        ),
    ] = POLICIES,
    setup: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Model on hardware; all: the article's six."),
    ] = ["70b_h100x4"],  # noqa: B006
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="causal, or prototype: the article's.")
    ] = "causal",
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What forecasts start from: built-in name, checkpoint, or models:/NAME@ALIAS.",
        ),
    ] = DEFAULT,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Same seed, same figures; the article's is 42.")
    ] = ARTICLE_SEED,
    json_to: JsonTo = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write DIR/index.html; finished cells are kept there."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Processes; one a core without it.")
    ] = os.cpu_count() or 1,
    bounds: Annotated[
        bool, typer.Option("--bounds", help="Add clairvoyant, and what none gets below.")
    ] = False,
    noise: Annotated[
        float, typer.Option(min=0.0, metavar="SIGMA", help="Prefill times vary, lognormally.")
    ] = 0.0,
    noise_seed: Annotated[int, typer.Option(metavar="N", help="What they are drawn from.")] = 0,
    hbm_share: Annotated[
        float, typer.Option(metavar="SHARE", help="Of the HBM for KV, what is left.")
    ] = 1.0,
    link_share: Annotated[
        float, typer.Option(metavar="SHARE", help="Of the NICs' bandwidth, what is left.")
    ] = 1.0,
    output_tokens: Annotated[
        int, typer.Option(min=0, metavar="N", help="Length of all answers; 0: the trace's.")
    ] = 0,
    mlflow: Annotated[bool, typer.Option("--mlflow/--no-mlflow", help="Log to MLflow.")] = True,
    fmt: Format = None,
    max_bad_share: MaxBadShare = 0.01,
    block_tokens: BlockTokens = None,
    start_spread: StartSpread = 3600.0,
) -> None:
    """Simulate policies on the same arrivals, and say how they differ.

    Each window is run whole, with a fresh cluster and forecaster. Intervals
    are 95 % ones from a bootstrap over blocks of a minute. --bounds says how
    far each policy is from clairvoyant, the best that a search finds with all
    arrivals known, and from what no policy can do better than that does not
    foresee a burst's first request. --noise and the three after it vary what
    policies take for granted, on the causal engine.

    For example:

    btb compare trace.jsonl

    btb compare windows --setup all --engine prototype --report out

    btb compare day --policy cache_aware --policy early_rdma:copies=2 --json -
    """
    options = ReaderOptions(
        max_bad_share=max_bad_share,
        block_tokens=block_tokens,
        start_spread_s=start_spread,
        seed=seed,
    )
    windows = Windows(tuple(traces), fmt, options)
    setups = [name for one in setup for name in (ARTICLE_SETUPS if one == "all" else (one,))]
    if bounds and (engine != "causal" or noise > 0.0):
        raise ConfigError("--bounds holds for the causal engine without --noise only")
    policies = (*policy, clairvoyant.NAME) if bounds and not _has_clairvoyant(policy) else policy
    parameters = CausalParameters(
        noise_sigma=noise,
        noise_seed=noise_seed if noise else 0,
        hbm_share=hbm_share,
        link_share=link_share,
        output_tokens=output_tokens,
    )
    plan = Plan(tuple(dict.fromkeys(setups)), tuple(policies), engine, model, seed, parameters)
    models = starting_models(plan)
    cells = plan_cells(plan, windows.open(), options, models)
    outcomes = _outcomes(cells, partial(simulate_cell, windows, models), jobs, report)
    notes = sorted({note for one in outcomes.values() for note in one.notes})
    for note in notes:
        CONSOLE.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
    comparison = collect(plan, _label(traces), cells, outcomes)
    rows, found = figures(comparison), differences(comparison)
    assumptions, machine = assumptions_of(plan), describe_machine()
    content = to_json(comparison, rows, found, assumptions=assumptions, machine=machine)
    least = _least(comparison.setups, windows) if bounds else {}
    content["bounds"] = [{"setup": name, **asdict(one)} for name, one in least.items()]
    regret = regrets(least, rows) if bounds else []
    content["regret"] = [asdict(one) for one in regret]
    sentences = [bound_sentence(name, one) for name, one in least.items()]
    if not write_json(json_to, content):
        print_comparison(comparison, rows, found, regret, Console())
        for sentence in sentences:
            Console().print(sentence, highlight=False, markup=False, soft_wrap=True)
    if report is None and not mlflow:
        return
    # Imported late: matplotlib takes a while, and a table in the terminal needs none of it.
    from btb.simulation.pictures import draw_all
    from btb.simulation.report import build_report

    drawn, origin = draw_all(comparison, rows), _origin(comparison, machine)
    page = build_report(
        comparison,
        rows,
        found,
        drawn,
        assumptions=assumptions,
        origin=origin,
        notes=[*sentences, *notes],
        regret=regret,
    )
    if report is not None:
        (report / "index.html").write_text(page, encoding="utf-8")
        CONSOLE.print(f"report: {report / 'index.html'}", soft_wrap=True)
    if mlflow:
        with CONSOLE.status("logging to MLflow"):
            log_comparison(comparison, content, drawn, page)


def _has_clairvoyant(policies: Sequence[str]) -> bool:
    return any(clairvoyant_tries(spec) is not None for spec in policies)


def _least(setups: Sequence[str], windows: Windows) -> dict[str, Bound]:
    """Return the bound of each setup over all windows."""
    with CONSOLE.status("working out bounds"):
        arrivals = [list(window) for window in windows.open()]
        return {name: lower_bound(SETUPS[name], arrivals) for name in setups}


def _label(traces: Sequence[Path]) -> str:
    first, *others = [path.name or str(path) for path in traces]
    return f"{first} and {len(others)} more" if len(others) > 2 else " ".join([first, *others])


def _outcomes(
    cells: Sequence[Cell], simulate: Callable[[Cell], Outcome], jobs: int, report: Path | None
) -> dict[Cell, Outcome]:
    """Return what became of each cell, run now or taken from an earlier run."""
    store = report / "cells" if report else None
    if store:
        _make_folder(store)
    done = stored_outcomes(cells, store) if store else {}
    if done:
        CONSOLE.print(f"{len(done)} of {len(cells)} cells taken from an earlier run")
    left = [cell for cell in cells if cell not in done]
    try:
        with _progress(len(cells), len(done)) as (progress, task):
            advance = partial(progress.advance, task)
            done |= run_cells(left, simulate, jobs=jobs, store=store, on_done=advance)
    except KeyboardInterrupt:
        if store:
            CONSOLE.print(
                f"finished cells are kept in {store}; the same command goes on from there"
            )
        raise
    except BrokenProcessPool as error:
        raise UserError(
            "a worker process was killed, most likely for lack of memory; fewer --jobs need less"
        ) from error
    return done


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--report: can't make {folder}: {error.strerror}") from error


@contextmanager
def _progress(total: int, done: int) -> Iterator[tuple[Progress, TaskID]]:
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cells, left:"),
        TimeRemainingColumn(),
    )
    seen = CONSOLE.is_terminal
    with Progress(*columns, console=CONSOLE, transient=True, disable=not seen) as progress:
        yield progress, progress.add_task("", total=total, completed=done)


def _origin(comparison: Comparison, machine: str) -> dict[str, str]:
    return {
        "trace": comparison.trace,
        "SHA-256 of the trace": comparison.digest,
        "windows": ", ".join(comparison.windows),
        "engine": comparison.engine,
        "forecasts start from": comparison.model,
        "seed": str(comparison.seed),
        "varied": ", ".join(f"{name} {value:g}" for name, value in comparison.varied.items())
        or "nothing",
        "machine": machine,
        "btb": version("bite-the-bullet"),
    }
