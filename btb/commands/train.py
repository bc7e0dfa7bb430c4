"""`btb train`: learn from a logged trace, and score what was learnt."""

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from btb.commands.options import BlockTokens, Format, JsonTo, MaxBadShare, StartSpread, Traces
from btb.commands.output import counting, write_json
from btb.commands.train_tables import as_json, print_pass, print_windows, shown, verdict
from btb.errors import ConfigError
from btb.service.log_since import log_since, parse_since
from btb.traces import ReaderOptions, Trace, open_windows
from btb.tracking import load_checkpoint
from btb.training import CHAMPION, LearnerModels, Pass, check_prefixes, run_pass, trained
from forecasting.forecaster import BOUNDARY_TOKENS
from models import DEFAULT, MODELS
from models.ablation import GROUPS, Without
from models.checkpoint import Checkpoint, save

WITHOUT = "without "
"""How the names of learners begin that a group of features is kept from."""


def train(
    traces: Traces,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(MODELS)}; or, to go on with it, a checkpoint or models:/NAME@ALIAS.",
        ),
    ] = DEFAULT,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="What to register the result as, in MLflow.")
    ] = "btb",
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="Of log folders of btb serve: from then on. 2h, or a time."
        ),
    ] = None,
    ablation: Annotated[
        bool,
        typer.Option("--ablation", help="Also learn without each group of features, to compare."),
    ] = False,
    boundary_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Depth of the prefixes to forecast, in tokens.")
    ] = BOUNDARY_TOKENS,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the checkpoint there too.")
    ] = None,
    json_to: JsonTo = None,
    mlflow: Annotated[
        bool, typer.Option("--mlflow/--no-mlflow", help="Log to MLflow and register there.")
    ] = True,
    fmt: Format = None,
    max_bad_share: MaxBadShare = 0.01,
    block_tokens: BlockTokens = None,
    start_spread: StartSpread = 3600.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Draws those starts.")] = 0,
) -> None:
    """Learn from logged traces, request by request, and score every forecast.

    At each request the model says how many more will share its prefix within
    1, 5, 15 and 60 s; when that time has passed it is scored, and learns. The
    same pass scores EWMAs of four half-lives and a Hawkes process. So no
    forecast is scored that could have known the answer.

    The result is registered in MLflow: in ./mlflow.db, unless
    MLFLOW_TRACKING_URI is set. It becomes models:/NAME@champion if it did
    better than the champion so far by more than may be chance, in the later
    half of the traces, where both go on learning; else the challenger.

    For example:

    btb train requests.jsonl

    btb train day/ --name chat --out chat.json --json scores.json

    btb train more.jsonl.zst --model models:/chat@champion --name chat

    btb train day/ --ablation --no-mlflow

    btb train log --since 24h --model models:/chat@champion --name chat
    """
    for path in (out, json_to):
        _claim(path)
    options = ReaderOptions(
        max_bad_share=max_bad_share,
        block_tokens=block_tokens,
        start_spread_s=start_spread,
        seed=seed,
    )
    start = replace(load_checkpoint(model), boundary_tokens=boundary_tokens)
    with ExitStack() as stack:
        if since is not None:
            from_s = parse_since(since, datetime.now(UTC))
            traces = stack.enter_context(log_since(traces, from_s))
        windows = open_windows(traces, fmt=fmt, options=options)
        check_prefixes(windows)
        registered = ""
        if mlflow:
            # Imported late: MLflow takes seconds.
            from btb.commands.train_log import train_logged

            settings = {"model": model, "start_spread_s": start_spread, "seed": seed}
            learn = partial(_learn, ablation=ablation, seed=seed)
            outcome, registered = train_logged(start, windows, name, settings, learn)
        else:
            outcome = _learn(start, windows, None, frozen=False, ablation=ablation, seed=seed)
        if out is not None:
            save(trained(start, windows), out)
        sentence = verdict(outcome, start.name)
        content = {"model": model, "verdict": sentence, "registered": registered}
        content |= as_json(outcome, windows)
    if write_json(json_to, content):
        return
    console = Console()
    print_windows(windows, outcome, console)
    print_pass(outcome, [*shown(outcome, start.name), *_without(outcome)], console)
    for line in filter(None, (sentence, registered)):
        console.print(f"[bold]{escape(line)}[/]", highlight=False)


def _learn(
    start: Checkpoint,
    windows: Sequence[Trace],
    champion: Checkpoint | None,
    frozen: bool,
    *,
    ablation: bool,
    seed: int,
) -> Pass:
    """Run the pass, counting requests on stderr; the champion, if any, goes along."""
    learners: dict[str, LearnerModels] = {start.name: start.models}
    if champion is not None:
        learners[CHAMPION] = champion.models
    if ablation:
        for group, names in GROUPS.items():
            fresh = copy.deepcopy(start.models)
            learners[f"{WITHOUT}{group}"] = {h: Without(one, names) for h, one in fresh.items()}
    with counting(f"training {start.name}") as on_rows:
        return run_pass(
            windows,
            learners,
            boundary_tokens=start.boundary_tokens,
            frozen=(CHAMPION,) if frozen else (),
            seed=seed,
            on_rows=on_rows,
        )


def _without(outcome: Pass) -> list[str]:
    return [name for name in outcome.qualities if name.startswith(WITHOUT)]


def _claim(path: Path | None) -> None:
    """Find out now, and not after training, that a file can't be written."""
    if path is None or str(path) == "-":
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.exists()
        path.open("a", encoding="utf-8").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror}") from error
