"""What `btb compare` shows in the terminal."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from btb.simulation.bounds import Regret
from btb.simulation.summary import Comparison, Difference, Figures
from btb.simulation.tables import COLUMNS, REGRET_TITLES, best_rows, regret_cells
from btb.simulation.wording import sentence


def print_comparison(
    comparison: Comparison,
    rows: Sequence[Figures],
    found: Sequence[Difference],
    regret: Sequence[Regret],
    out: Console,
) -> None:
    """Print a table a setup, best values in bold, and a sentence a policy."""
    for setup in comparison.setups:
        against = {one.policy: one for one in found if one.setup == setup}
        here = [row for row in rows if row.setup == setup]
        out.print(_table(setup, here))
        for place, row in enumerate(here):
            text = sentence(row, against.get(row.policy) if place else None)
            out.print(escape(text), highlight=False, soft_wrap=True)
        if regret:
            out.print(_regret_table([one for one in regret if one.setup == setup]))
        out.print()


def _regret_table(found: Sequence[Regret]) -> Table:
    table = Table(title="regret", box=SIMPLE_HEAD, title_justify="left", padding=(0, 0, 0, 1))
    table.add_column("policy", overflow="fold")
    for title in REGRET_TITLES:
        table.add_column(title.replace("/ ", "/\n"), justify="right", no_wrap=True)
    for one in found:
        table.add_row(escape(one.policy), *regret_cells(one))
    return table


def _table(setup: str, rows: Sequence[Figures]) -> Table:
    table = Table(title=setup, box=SIMPLE_HEAD, title_justify="left", padding=(0, 0, 0, 1))
    table.add_column("policy", overflow="fold")
    best = [best_rows(column, rows) for column in COLUMNS]
    for column in COLUMNS:
        title = "\n".join(column.title.split(" ", 1))
        table.add_column(title, justify="right", no_wrap=True, vertical="bottom")
    for place, row in enumerate(rows):
        cells = [column.text(column.value(row)) for column in COLUMNS]
        marked = [
            f"[bold]{cell}[/]" if place in best[number] else cell
            for number, cell in enumerate(cells)
        ]
        table.add_row(escape(row.policy), *marked)
    return table
