"""Tables of an audit for the terminal."""

from collections.abc import Iterable
from math import isinf

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from btb.traces.audit import Audit
from btb.traces.audit.pairs import Pairs
from btb.traces.audit.result import DepthFound
from btb.traces.audit.reuse import Reuse


def print_audit(found: Audit, console: Console) -> None:
    """Print all that was found, and the verdict last."""
    windows = f" in {found.traces} windows" if found.traces > 1 else ""
    console.print(
        f"[bold]{escape(found.name)}[/]: {found.requests:,} requests{windows}, "
        f"{found.input_tokens:,} input tokens, {found.span_s:,.0f} s, "
        f"{found.arrivals_per_s:.3f} requests/s",
        highlight=False,
    )
    for note in found.notes:
        console.print(f"note: {escape(note)}", highlight=False)
    if 0.0 in found.peaks:
        console.print(
            "note: windows shorter than a tick of the clock can't be told, one tick stands in "
            "their place",
            highlight=False,
        )
    for asked in (depth for depth in found.depths if depth.asked_tokens != depth.depth_tokens):
        console.print(
            f"note: depth {asked.asked_tokens:,} was rounded up to {asked.depth_tokens:,} tokens, "
            f"whole blocks of {found.block_tokens}",
            highlight=False,
        )
    console.print(_largest(found))
    if found.reuse is not None:
        console.print(_events(found))
        console.print(_pairs(found.depths))
        console.print(_reuse(found.reuse, found.input_tokens))
    console.print(f"[bold]{escape(found.verdict)}[/]", highlight=False)


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _largest(found: Audit) -> Table:
    labels = [f"in {_label(window_s, found.tick_s)}" for window_s in found.peaks]
    table = _table("Most requests on one prefix", ("depth, tokens", "requests", *labels))
    peaks = (f"{count:,}" for count in found.peaks.values())
    table.add_row("any prefix", f"{found.requests:,}", *peaks)
    for depth in found.depths:
        cells = (f"{window.largest:,}" for window in depth.windows)
        table.add_row(f"{depth.depth_tokens:,}", f"{depth.requests:,}", *cells)
    return table


def _events(found: Audit) -> Table:
    table = _table(
        "Burst events, overlapping windows merged (in brackets: of how many prefixes)",
        ("depth, tokens", "window", "8 or more", "20 or more"),
    )
    for depth in found.depths:
        for window in (one for one in depth.windows if one.events_8):
            table.add_row(
                f"{depth.depth_tokens:,}",
                _label(window.window_s, found.tick_s),
                f"{window.events_8:,} ({window.prefixes_8:,})",
                f"{window.events_20:,} ({window.prefixes_20:,})",
            )
    if not table.row_count:
        table.add_row("any", "any", "0", "0")
    return table


def _label(window_s: float, tick_s: float | None) -> str:
    return f"a tick ({tick_s:.3g} s)" if window_s == 0.0 and tick_s else f"{window_s:g} s"


def _pairs(depths: Iterable[DepthFound]) -> Table:
    table = _table(
        "Two requests in 10 s: do 4 more follow in 30 s?",
        ("depth, tokens", "pairs", "right", "share", "cold ones", "right", "share"),
    )
    for depth in depths:
        table.add_row(f"{depth.depth_tokens:,}", *_pair_cells(depth.pairs))
    return table


def _pair_cells(pairs: Pairs) -> Iterable[str]:
    for all_of, right in ((pairs.triggers, pairs.positive), (pairs.cold, pairs.cold_positive)):
        yield f"{all_of:,}"
        yield f"{right:,}"
        yield f"{right / all_of:.1%}" if all_of else "-"


def _reuse(reuse: Reuse, input_tokens: int) -> Table:
    labels = ["at any time" if isinf(age_s) else f"{age_s:g} s" for age_s in reuse.tokens]
    title = "Input tokens that an earlier request had, used last within"
    if reuse.forgotten:
        title += " (memory ran out, so `at any time` is too low)"
    table = _table(title, (*labels, "requests with any", "distinct blocks"))
    shares = (f"{tokens / max(input_tokens, 1):.1%}" for tokens in reuse.tokens.values())
    table.add_row(*shares, f"{reuse.requests:,}", f"{reuse.blocks:,}")
    return table
