"""What is shown of each policy, and how: the columns, and tables as HTML."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import isnan

from btb.simulation.bounds import Regret
from btb.simulation.summary import Difference, Figures
from btb.simulation.wording import format_bytes, format_signed, format_time


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table of results; `best` picks the best value, None where there is none."""

    title: str
    value: Callable[[Figures], float]
    text: Callable[[float], str]
    best: Callable[[Iterable[float]], float] | None = min


COLUMNS = (
    Column("mean TTFT", lambda row: row.ttft_mean_s, format_time),
    Column("p50", lambda row: row.ttft_p50_s, format_time),
    Column("p95", lambda row: row.ttft_p95_s, format_time),
    Column("p99", lambda row: row.ttft_p99_s, format_time),
    Column("hit rate", lambda row: row.hit_rate, lambda share: f"{share * 100:.1f} %", max),
    Column("moved", lambda row: row.moved_bytes, format_bytes, None),
    Column("never used", lambda row: row.wasted_bytes, format_bytes, None),
    Column("req/ CPU·s", lambda row: row.sim_requests_per_cpu_s, "{:,.0f}".format, None),
)
"""What the terminal and the report show of each policy, in this order."""


def best_rows(column: Column, rows: Sequence[Figures]) -> set[int]:
    """Return the places of the best value, as shown; none where a column has no best or all tie."""
    if column.best is None:
        return set()
    best = column.text(column.best(column.value(row) for row in rows))
    found = {place for place, row in enumerate(rows) if column.text(column.value(row)) == best}
    return set() if len(found) == len(rows) else found


def results_table(setup: str, rows: Sequence[Figures]) -> str:
    """Return a table with a row a policy, all of them on `setup`."""
    best = [best_rows(column, rows) for column in COLUMNS]
    body = []
    for place, row in enumerate(rows):
        cells = [
            f"<td{_best(place in best[number])}>{escape(column.text(column.value(row)))}</td>"
            for number, column in enumerate(COLUMNS)
        ]
        body.append((row.policy, cells))
    caption = "Results, the best value of a column in bold; req/CPU·s: simulated per CPU second"
    return _table(f"{setup} results", caption, ["policy", *(one.title for one in COLUMNS)], body)


def _best(is_best: bool) -> str:
    return ' class="best"' if is_best else ""


def differences_table(setup: str, found: Sequence[Difference]) -> str:
    """Return a table with a row a policy and its interval; empty text where nothing is compared."""
    if not found:
        return ""
    body = []
    for one in found:
        paired = one.paired
        cells = (
            _with_interval(paired.mean_change, paired.mean_change_ci, format_signed, " %"),
            _with_interval(paired.mean_diff_s, paired.mean_diff_ci_s, _signed_time, ""),
            _with_interval(paired.p95_change, paired.p95_change_ci, format_signed, " %"),
        )
        body.append((one.policy, [f"<td>{escape(text)}</td>" for text in cells]))
    caption = (
        f"Against {found[0].baseline}, request by request, with 95 % intervals from a bootstrap "
        f"over {found[0].paired.clusters} blocks of a minute"
    )
    heads = ["policy", "mean TTFT", "mean TTFT, time", "p95"]
    return _table(f"{setup} differences", caption, heads, body)


def regret_table(setup: str, found: Sequence[Regret]) -> str:
    """Return a table with a row a policy, how far it is from the bounds; empty text without any."""
    rows = [one for one in found if one.setup == setup]
    if not rows:
        return ""
    body = [(one.policy, [f"<td>{text}</td>" for text in regret_cells(one)]) for one in rows]
    return _table(f"{setup} regret", REGRET_CAPTION, ["policy", *REGRET_TITLES], body)


REGRET_TITLES = ("mean / clairvoyant", "p95 / clairvoyant", "mean / bound", "p95 / bound")

REGRET_CAPTION = (
    "Regret: TTFT in times that of clairvoyant, the best found with all arrivals known, and of the "
    "bound that no policy gets below without foresight of first requests"
)


def regret_cells(one: Regret) -> list[str]:
    """Return a policy's regret as shown, in the order of `REGRET_TITLES`."""
    shown = (
        one.mean_over_clairvoyant,
        one.p95_over_clairvoyant,
        one.mean_over_bound,
        one.p95_over_bound,
    )
    return [f"{times:.3f}" for times in shown]


def _with_interval(
    value: float, interval: tuple[float, float], text: Callable[[float], str], unit: str
) -> str:
    if isnan(interval[0]):
        return f"{text(value)}{unit} (no interval)"
    return f"{text(value)}{unit} ({text(interval[0])} to {text(interval[1])})"


def _signed_time(seconds: float) -> str:
    sign = "−" if seconds < 0 else "+" if seconds > 0 else ""
    return f"{sign}{format_time(abs(seconds))}"


def _table(
    label: str, caption: str, heads: Sequence[str], body: Sequence[tuple[str, Sequence[str]]]
) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>' for name, cells in body
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def reasons_table(rows: Sequence[Figures]) -> str:
    """Return a folded table of how often each policy gave which reason; empty text without any."""
    body = [
        (
            row.policy,
            [f'<td class="wrap">{escape(reason or "no reason given")}</td>', f"<td>{count:,}</td>"],
        )
        for row in rows
        for reason, count in row.decisions.items()
    ]
    if not body:
        return ""
    table = _table("decisions", "Reasons the policies gave", ["policy", "reason", "times"], body)
    return f"<details><summary>Why requests went where they went</summary>{table}</details>"
