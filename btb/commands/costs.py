"""`btb costs`: what computing a prefix costs against moving it."""

import json
from difflib import get_close_matches
from math import log10
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from btb.errors import ConfigError
from btb.simulation.costs import Cost, cost_table, draw_costs, format_ms
from btb.simulation.setups import SETUPS, Setup

BAR_CELLS = 44
"""Width of the longest bar in the terminal."""


def costs(
    setup: Annotated[
        str, typer.Option(help="Model on hardware, e.g. 70b_h100x4.", metavar="SETUP")
    ] = "70b_h100x4",
    tokens: Annotated[
        str, typer.Option(help="Prefix lengths, with commas between.", metavar="N,N,...")
    ] = "500,1000,2000,8000,16000,32000",
    json_to: Annotated[
        Path | None,
        typer.Option(
            "--json", help="Write JSON to FILE, or only JSON to stdout for -.", metavar="FILE"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Draw a bar chart to FILE: .svg, .png or .pdf.", metavar="FILE"),
    ] = None,
) -> None:
    """Show what computing a prefix's KV costs against moving it, by where it lies.

    The first five rows are the article's formulas. The last one counts
    attention too, which weighs more the longer a prompt gets.

    For example:

    btb costs --setup 70b_h100x4

    btb costs --setup glm45_h200x4 --tokens 4096,65536 --out costs.svg
    """
    chosen = _setup(setup)
    counts = _tokens(tokens)
    rows = cost_table(chosen, counts)
    if out is not None:
        _draw(chosen, counts, out)
    if json_to is not None:
        text = json.dumps(_json(chosen, counts, rows), indent=2) + "\n"
        if str(json_to) == "-":
            typer.echo(text, nl=False)
            return
        _write(json_to, text)
    _show(chosen, counts, rows)


def format_ratio(times_faster: float | None) -> str:
    """Return "44x", with a digit more below ten; a dash where there is no one ratio."""
    if times_faster is None:
        return "-"
    return f"{times_faster:.2g}x" if times_faster < 10 else f"{times_faster:.0f}x"


def format_tokens(count: int) -> str:
    """Return "8k" for 8,000: k is a thousand here, as in the article."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)


def _setup(name: str) -> Setup:
    if name in SETUPS:
        return SETUPS[name]
    near = get_close_matches(name, SETUPS, n=1, cutoff=0.0)[0]
    raise ConfigError(
        f"--setup: no setup is called {name!r}, nearest is {near}; known are {', '.join(SETUPS)}"
    )


def _tokens(text: str) -> tuple[int, ...]:
    counts = []
    for part in text.split(","):
        if not (part.strip().isdecimal() and int(part) > 0):
            raise ConfigError(f"--tokens: {part!r} is no number of tokens; expected e.g. 500,8000")
        counts.append(int(part))
    return tuple(counts)


def _json(setup: Setup, counts: tuple[int, ...], rows: list[Cost]) -> dict[str, object]:
    return {
        "setup": setup.name,
        "kv_token_bytes": setup.kv_token_bytes,
        "tokens": list(counts),
        "rows": [
            {"source": row.source, "seconds": list(row.seconds), "times_faster": row.times_faster}
            for row in rows
        ],
    }


def _draw(setup: Setup, counts: tuple[int, ...], out: Path) -> None:
    if out.suffix not in {".svg", ".png", ".pdf"}:
        raise ConfigError(f"--out: {out} should end in .svg, .png or .pdf")
    figure = draw_costs(setup, counts)
    try:
        figure.savefig(out, dpi=150)
    except OSError as error:
        raise ConfigError(f"--out: can't write {out}: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json: can't write {path}: {error.strerror}") from error


def _show(setup: Setup, counts: tuple[int, ...], rows: list[Cost]) -> None:
    console = Console()
    kib = setup.kv_token_bytes / 2**10
    title = f"{setup.name}, {kib:g} KiB of KV a token: ms until it is there"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("source", no_wrap=True)
    for count in counts:
        table.add_column(format_tokens(count), justify="right")
    table.add_column("vs prefill", justify="right")
    for row in rows:
        times = [format_ms(seconds) for seconds in row.seconds]
        table.add_row(row.source, *times, format_ratio(row.times_faster))
    console.print(table)
    _show_bars(console, counts, rows)


def _show_bars(console: Console, counts: tuple[int, ...], rows: list[Cost]) -> None:
    """Draw the largest column as bars; each cell is the same factor, so the scale is a log."""
    longest_s = max(row.seconds[-1] for row in rows)
    shortest_s = min(row.seconds[-1] for row in rows)
    decades = max(1.0, log10(longest_s / shortest_s) + 0.5)
    console.print(f"\n{format_tokens(counts[-1])} tokens, ms on a log scale")
    for row in rows:
        share = 1.0 - log10(longest_s / row.seconds[-1]) / decades
        bar = "█" * max(1, round(BAR_CELLS * share))
        console.print(f"{row.source:>22} {bar} {format_ms(row.seconds[-1])}", highlight=False)
