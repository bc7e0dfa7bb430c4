"""Options that mean the same in every command that reads traces."""

from pathlib import Path
from typing import Annotated

import typer

Traces = Annotated[
    list[Path], typer.Argument(metavar="TRACE", help="Trace files, or folders of windows.")
]

Format = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="Format of the traces, where it isn't seen."),
]

MaxBadShare = Annotated[
    float, typer.Option(metavar="SHARE", help="Rows that may be bad before reading stops.")
]

BlockTokens = Annotated[
    int | None, typer.Option(metavar="N", help="Block size, where the trace doesn't say.")
]

StartSpread = Annotated[
    float,
    typer.Option(metavar="SECONDS", help="Sessions without a clock start within this time."),
]

JsonTo = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write JSON there; - is stdout.")
]
