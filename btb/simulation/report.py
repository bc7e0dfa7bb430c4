"""A comparison as one HTML file that loads nothing: sentences, tables, and pictures in place."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

from btb.simulation.bounds import Regret
from btb.simulation.pictures import Picture, inline_svg
from btb.simulation.summary import Comparison, Difference, Figures
from btb.simulation.tables import (
    differences_table,
    reasons_table,
    regret_table,
    results_table,
)
from btb.simulation.wording import headlines, sentence


def build_report(
    comparison: Comparison,
    rows: Sequence[Figures],
    found: Sequence[Difference],
    drawn: Mapping[str, Sequence[Picture]],
    *,
    assumptions: Sequence[str],
    origin: Mapping[str, str],
    notes: Sequence[str],
    regret: Sequence[Regret] = (),
) -> str:
    """Return the whole page.

    Parameters
    ----------
    drawn
        The pictures of each setup, from `pictures`.
    assumptions, origin, notes
        What the engine takes for granted, what the run depends on by name, and what was met while
        the windows were read.
    regret
        How far each policy is from the bounds, where these were asked for.
    """
    template = Template((files("btb.simulation") / "report.html").read_text(encoding="utf-8"))
    others = ", ".join(comparison.policies[1:])
    title = f"{others} against {comparison.policies[0]}" if others else comparison.policies[0]
    return template.substitute(
        title=escape(title),
        headline="".join(f"<p>{escape(line)}</p>" for line in headlines(rows, found)),
        scope=escape(_scope(comparison, rows)),
        nav=_nav(comparison.setups),
        setups="\n".join(
            _setup_section(
                setup,
                [row for row in rows if row.setup == setup],
                [one for one in found if one.setup == setup],
                drawn[setup],
                regret,
            )
            for setup in comparison.setups
        ),
        assumptions=_listed(assumptions),
        origin="\n".join(
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in origin.items()
        ),
        notes=f"<h3>Met while reading</h3>\n{_listed(notes)}" if notes else "",
    )


def _scope(comparison: Comparison, rows: Sequence[Figures]) -> str:
    windows = len(comparison.windows)
    return (
        f"Simulated with the {comparison.engine} engine: {rows[0].requests:,} requests in "
        f"{windows} window{'s' if windows > 1 else ''} of {comparison.trace}, the same for each "
        "policy. TTFT is from arrival at the router to the first token."
    )


def _nav(setups: Sequence[str]) -> str:
    targets = {setup: f"setup-{setup}" for setup in setups}
    targets |= {"What is assumed": "assumptions", "Where this comes from": "origin"}
    items = "".join(
        f'<li><a href="#{escape(target)}">{escape(text)}</a></li>'
        for text, target in targets.items()
    )
    return f'<nav aria-label="Sections"><ul>{items}</ul></nav>'


def _setup_section(
    setup: str,
    rows: Sequence[Figures],
    found: Sequence[Difference],
    drawn: Sequence[Picture],
    regret: Sequence[Regret],
) -> str:
    against = {one.policy: one for one in found}
    said = "".join(
        f"<li>{escape(sentence(row, against.get(row.policy) if place else None))}</li>"
        for place, row in enumerate(rows)
    )
    shown = "\n".join(
        f"<h3>{escape(one.title)}</h3>\n<figure>{inline_svg(one, f'{setup}-{one.name}-')}"
        f"<figcaption>{escape(one.caption)}</figcaption></figure>"
        for one in drawn
    )
    return (
        f'<section id="setup-{escape(setup)}">\n<h2>{escape(setup)}</h2>\n<ul>{said}</ul>\n'
        f"{results_table(setup, rows)}\n{differences_table(setup, found)}\n"
        f"{regret_table(setup, regret)}\n{shown}\n"
        f"{reasons_table(rows)}\n</section>"
    )


def _listed(items: Sequence[str]) -> str:
    if not items:
        return "<p>Nothing to report.</p>"
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
