"""`btb evaluate`: how many bursts a model sees coming, how early, and how often in vain."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from btb.commands.options import BlockTokens, Format, JsonTo, MaxBadShare, StartSpread, Traces
from btb.commands.output import counting, write_json
from btb.evaluation import SEEN, BurstKind, Evaluation, Point
from btb.evaluation import evaluate as evaluate_traces
from btb.traces import ReaderOptions, Trace, open_windows
from btb.tracking import load_checkpoint
from btb.training import check_prefixes
from forecasting.forecaster import BOUNDARY_TOKENS
from models import DEFAULT, MODELS


def evaluate(
    traces: Traces,
    model: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(MODELS)}; a checkpoint or models:/NAME@ALIAS. May be repeated.",
        ),
    ] = [DEFAULT],  # noqa: B006 - typer wants a list, and copies it
    more: Annotated[
        int, typer.Option(min=1, metavar="N", help="Arrivals that must follow one for a burst.")
    ] = 20,
    within: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time in which they must come; a horizon.")
    ] = 60.0,
    threshold: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Probability of a burst from which a model alarms."),
    ] = 0.5,
    boundary_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens that a burst shares.")
    ] = BOUNDARY_TOKENS,
    json_to: JsonTo = None,
    mlflow: Annotated[bool, typer.Option("--mlflow/--no-mlflow", help="Log to MLflow.")] = True,
    fmt: Format = None,
    max_bad_share: MaxBadShare = 0.01,
    block_tokens: BlockTokens = None,
    start_spread: StartSpread = 3600.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Draws those starts.")] = 0,
) -> None:
    """Hold a model's alarms against the bursts in a trace, beside three rules.

    A burst is an arrival that 20 more follow within 60 s, all with the same
    first 2,048 tokens. For the alarms that had sounded when 0, 1, 2, 3 and 5
    of its arrivals were seen: precision, recall and F1. At 0 it was foreseen:
    bursts on the prefix come back, and the next one was due. Lead is the
    median of what was still to come when the alarm sounded.

    The rules are the prototype's (2 requests within 1 s), Mooncake's heat
    (0.8 requests/s over 10 s) and 2 within llm-d's window of 100 ms. Models
    learn as they go, from nothing or from where a checkpoint left off.

    All of it is kept in MLflow, a run a detector: in ./mlflow.db, unless
    MLFLOW_TRACKING_URI is set.

    For example:

    btb evaluate requests.jsonl

    btb evaluate day/ --model river --model combined --json -

    btb evaluate day/ --model models:/chat@champion --more 8 --within 15
    """
    options = ReaderOptions(
        max_bad_share=max_bad_share,
        block_tokens=block_tokens,
        start_spread_s=start_spread,
        seed=seed,
    )
    models = {name: load_checkpoint(name).models for name in model}
    windows = open_windows(traces, fmt=fmt, options=options)
    check_prefixes(windows)
    kind = BurstKind(more, within, threshold)
    with counting("evaluating") as on_rows:
        outcome = evaluate_traces(
            windows, models, kind, boundary_tokens=boundary_tokens, on_rows=on_rows
        )
    content = _as_json(outcome, windows, kind)
    if mlflow:
        # Imported late: MLflow takes seconds.
        from btb.commands.evaluate_log import log_evaluation

        params = {
            "model": " ".join(model),
            **content["burst"],
            "boundary_tokens": boundary_tokens,
            "start_spread_s": start_spread,
            "seed": seed,
        }
        log_evaluation(outcome, windows, params, content)
    if write_json(json_to, content):
        return
    _print(outcome, kind, Console())


def _print(outcome: Evaluation, kind: BurstKind, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("detector", no_wrap=True)
    for seen in SEEN:
        table.add_column(f"by {seen}", justify="right", no_wrap=True)
    table.add_column("lead", justify="right", no_wrap=True)
    for name in outcome.alarms:
        lead = outcome.lead(name)
        points = [_shown(outcome.point(name, seen)) for seen in SEEN]
        ahead = "" if lead is None else f"{lead[0]:g}, {lead[1]:.1f} s"
        table.add_row(escape(name), *points, ahead)
    console.print(table)
    left = f"Not known at the end: {outcome.unfinished:,}. " if outcome.unfinished else ""
    short = f", too short: {outcome.short:,}" if outcome.short else ""
    console.print(
        f"Episodes: {outcome.episodes:,}, bursts of {kind.more} more in {kind.within_s:g} s among "
        f"them: {outcome.bursts:,}. {left}Requests: {outcome.arrivals:,}{short}.",
        highlight=False,
    )
    console.print(
        "Precision/recall/F1 in per cent, of the alarms that had sounded by so many arrivals of an "
        "episode. Lead, median over bursts: arrivals still to come, and the time until there were "
        "enough for a burst.",
        style="dim",
        highlight=False,
    )


def _shown(point: Point) -> str:
    parts = (point.precision, point.recall, point.f1)
    return "/".join("-" if part is None else f"{100.0 * part:.0f}" for part in parts)


def _as_json(outcome: Evaluation, windows: Sequence[Trace], kind: BurstKind) -> dict[str, Any]:
    detectors = []
    for name, alarms in outcome.alarms.items():
        lead = outcome.lead(name)
        points = [(seen, outcome.point(name, seen)) for seen in SEEN]
        detectors.append(
            {
                "name": name,
                "by_arrivals_seen": [
                    {"seen": n, "precision": p.precision, "recall": p.recall, "f1": p.f1}
                    for n, p in points
                ],
                "withdrawn": alarms.withdrawn,
                "lead_arrivals": None if lead is None else lead[0],
                "lead_s": None if lead is None else lead[1],
            }
        )
    return {
        "traces": [{"name": one.name, "digest": one.digest} for one in windows],
        "burst": {"more": kind.more, "within_s": kind.within_s, "threshold": kind.threshold},
        "arrivals": outcome.arrivals,
        "too_short": outcome.short,
        "episodes": outcome.episodes,
        "bursts": outcome.bursts,
        "unfinished": outcome.unfinished,
        "detectors": detectors,
    }
