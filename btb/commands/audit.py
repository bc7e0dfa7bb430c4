"""`btb audit`: say whether a trace has bursts, and whether btb would pay there."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from btb.commands.audit_tables import print_audit
from btb.errors import ConfigError
from btb.traces import open_windows
from btb.traces.audit import DEPTHS_TOKENS, WINDOWS_S, Audit
from btb.traces.audit import audit as audit_traces

DEPTHS = ",".join(map(str, DEPTHS_TOKENS))
WINDOWS = ",".join(map("{:g}".format, WINDOWS_S))


def audit(
    traces: Annotated[
        list[Path], typer.Argument(metavar="TRACE", help="Trace files, or folders of windows.")
    ],
    depths: Annotated[str, typer.Option(help="Prefix depths in tokens, with commas.")] = DEPTHS,
    windows: Annotated[
        str, typer.Option(help="Sliding windows in seconds, with commas.")
    ] = WINDOWS,
    json_to: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write JSON there; - is stdout.")
    ] = None,
    fmt: Annotated[
        str | None, typer.Option("--format", help="Format of the traces, where it isn't seen.")
    ] = None,
) -> None:
    """Count requests that share a prefix, and say whether btb would pay.

    For each depth: the largest number of requests on one prefix within a
    sliding window, how often there were 8 or 20 of them, and whether two
    requests within 10 s foretell at least 4 more in the next 30 s (cold: the
    prefix had none in the 60 s before). Then the share of input tokens that
    an earlier request had already, and one sentence on what it means.

    A depth is rounded up to whole blocks. A folder's windows are summed up,
    and nothing is carried from one to the next. Where the trace's clock ticks
    in steps, nothing is said of shorter windows. --json holds a list with one
    object a TRACE.

    For example:

    btb audit requests.jsonl

    btb audit trace.jsonl.zst --depths 2048,8192 --windows 10,60

    btb audit windows/ --json -
    """
    depths_tokens = [int(depth) for depth in _numbers("--depths", depths, whole=True)]
    windows_s = _numbers("--windows", windows)
    found = [_audit(path, fmt, depths_tokens, windows_s) for path in traces]
    if json_to is not None:
        text = json.dumps([one.as_json() for one in found], indent=1)
        if str(json_to) == "-":
            typer.echo(text)
            return
        json_to.write_text(text + "\n", encoding="utf-8")
    for one in found:
        print_audit(one, Console())


def _audit(
    path: Path, fmt: str | None, depths_tokens: Sequence[int], windows_s: Sequence[float]
) -> Audit:
    windows = open_windows([path], fmt=fmt)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}: {task.completed:,} requests"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(f"reading {path.name}", total=None)
        return audit_traces(
            windows[0].name if len(windows) == 1 else path.name,
            windows,
            depths_tokens=depths_tokens,
            windows_s=windows_s,
            on_rows=lambda rows: progress.advance(task, rows),
        )


def _numbers(option: str, text: str, *, whole: bool = False) -> list[float]:
    try:
        return [int(one) if whole else float(one) for one in text.split(",")]
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(f"{option} takes {kind} with commas between, got {text!r}") from None
