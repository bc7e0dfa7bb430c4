"""The pictures of a comparison, each with its question, and as SVG that stands in a page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO

import matplotlib as mpl
from matplotlib.figure import Figure

from btb.simulation import plots
from btb.simulation.summary import Comparison, Figures


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with the question that it answers, and how to read it."""

    name: str
    title: str
    caption: str
    figure: Figure


def pictures(comparison: Comparison, setup: str, rows: Sequence[Figures]) -> list[Picture]:
    """Return the pictures of one setup; `rows` are its figures."""
    window = plots.typical_window(comparison, setup)
    where = f"Window {comparison.windows[window]}"
    if len(comparison.windows) > 1:
        where += f", whose mean TTFT under {comparison.policies[0]} is the median of all windows"
    moved = plots.draw_transfers(comparison, setup, window)
    found = [
        Picture(
            "ttft_distribution",
            "How long requests waited",
            "Share of all requests that had their first token within a time; further left and "
            "higher is better.",
            plots.draw_distributions(comparison, setup),
        ),
        Picture(
            "ttft_over_time",
            "When they waited",
            f"{where}: arrivals, and the mean TTFT of those that arrived then.",
            plots.draw_over_time(comparison, setup, window),
        ),
        Picture(
            "hit_tokens",
            "Where prompt tokens came from",
            "Share of all prompt tokens by the place where their KV was found.",
            plots.draw_hits(rows),
        ),
        Picture(
            "moved_bytes",
            "What was moved",
            "Bytes that a policy had copied between replicas, by whether a request used them "
            "before they were evicted.",
            plots.draw_bytes(rows),
        ),
    ]
    if moved is not None:
        caption = f"{where}: copies by the replica that received them. Bars are drawn at least a "
        caption += "hair wide, so short ones look longer than they are."
        found.append(Picture("transfers", "What moved when", caption, moved))
    return found


def draw_all(comparison: Comparison, rows: Sequence[Figures]) -> dict[str, list[Picture]]:
    """Return the pictures of every setup, by its name."""
    return {
        setup: pictures(comparison, setup, [row for row in rows if row.setup == setup])
        for setup in comparison.setups
    }


def inline_svg(picture: Picture, prefix: str) -> str:
    """Return the figure as an `<svg>` element that can stand in a page with others.

    Its ids begin with `prefix`, its text takes the page's colour, and it is the same on each run.
    """
    text = StringIO()
    with mpl.rc_context(plots.STYLE):
        picture.figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:xlink)?="[^"]*"', "", svg)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'xlink:href="#', f'href="#{prefix}', svg)
    svg = svg.replace("url(#", f"url(#{prefix}").replace(plots.INK, "currentColor")
    label = escape(f"{picture.title}. {picture.caption}", quote=True)
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
