"""`btb generate`: write synthetic windows with known bursts."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from btb.errors import ConfigError
from btb.traces.generate import (
    article_windows,
    claim_folder,
    make_windows,
    read_article,
    write_windows,
)
from btb.traces.parameters import make_parameters, pairs
from btb.traces.workloads import FAMILIES
from btb.traces.workloads.base import Window

Made = tuple[dict[str, object], int, Iterable[Window]]
"""Head of a manifest, number of windows, and the windows."""


def generate(
    family: Annotated[str, typer.Argument(help=f"{', '.join(FAMILIES)} or article.")],
    parameters: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE", help="Parameters of the family."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the windows and manifest.json.")] = Path(
        "windows"
    ),
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    windows: Annotated[
        str, typer.Option(help="How many windows; for article, the file with its start times.")
    ] = "1",
    duration: Annotated[float | None, typer.Option(help="Seconds in a window.")] = None,
    even: Annotated[
        bool, typer.Option("--even", help="Evenly spaced requests in a burst, not Poisson.")
    ] = False,
    set_name: Annotated[
        str | None,
        typer.Option("--set", help="Article only: b60 (bursts of 60 s, the default) or b1 (1 s)."),
    ] = None,
    zst: Annotated[bool, typer.Option("--zst", help="Compress the windows.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the windows in a folder that has some.")
    ] = False,
) -> None:
    """Write a synthetic trace whose bursts are known.

    Each window is one JSONL file in Mooncake's format; manifest.json says
    when which prefix bursts. compare, train and audit take the folder.
    A wrong NAME is answered with the family's parameters and their defaults;
    docs/workloads.md explains them.

    For example:

    btb generate fanout --seed 1 --windows 3 --out windows

    btb generate fanout size=100 span_s=1 decoy_repeats=2 --even --out short

    btb generate mixed --duration 86400 --zst --out day

    btb generate article --windows windows.json --set b1 --out article
    """
    settings = pairs(parameters or [])
    if duration is not None:
        settings["duration_s"] = str(duration)
    if even:
        settings["even"] = "true"
    if family == "article":
        header, count, made = _article(windows, set_name or "b60", settings)
    elif set_name is not None:
        raise ConfigError(f"--set is for article only, not for {family}")
    else:
        header, count, made = _family(family, windows, seed, settings)
    claim_folder(out, force=force)
    with Progress(
        SpinnerColumn(),
        *Progress.get_default_columns()[:2],
        TextColumn("{task.completed}/{task.total} windows"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(f"writing {family}", total=count)
        manifest = write_windows(
            out, made, header, compress=zst, on_window=lambda: progress.advance(task)
        )
    Console().print(_summary(out, manifest))


def _family(family: str, windows: str, seed: int, settings: dict[str, str]) -> Made:
    chosen = make_parameters(family, settings)
    if not windows.isdecimal() or int(windows) < 1:
        raise ConfigError(f"--windows must be a number from 1, got {windows!r}")
    header: dict[str, object] = {"family": family, "seed": seed, "parameters": asdict(chosen)}
    return header, int(windows), make_windows(family, chosen, seed=seed, windows=int(windows))


def _article(windows: str, set_name: str, settings: dict[str, str]) -> Made:
    if settings:
        raise ConfigError(f"article is rebuilt as it was: it takes no {', '.join(settings)}")
    if not Path(windows).is_file():
        raise ConfigError(f"article needs --windows FILE with its start times; no file {windows!r}")
    given, shape = read_article(Path(windows), set_name)
    header: dict[str, object] = {"family": "article", "seed": None, "parameters": shape}
    return header, len(given.starts_s), article_windows(given)


def _summary(out: Path, manifest: dict[str, Any]) -> Table:
    table = Table(title=f"{out}: {manifest['family']}", title_justify="left")
    for column in ("window", "requests", "seconds", "bursts", "in bursts"):
        table.add_column(column, justify="left" if column == "window" else "right")
    for window in manifest["windows"]:
        sizes = [burst["size"] for burst in window["bursts"]]
        counts = (window["requests"], round(window["duration_s"]), len(sizes), sum(sizes))
        table.add_row(window["file"], *(f"{count:,}" for count in counts))
    return table
