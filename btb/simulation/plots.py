"""The figures of a comparison as pictures: one function a question, each gives a matplotlib figure.

Colours are told apart by people who see colours differently (Okabe & Ito), and readable on white
and on near-black. Lines differ in dash as well. Text and axes are drawn in `INK`, which the report
turns into the page's own text colour.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from btb.simulation.cells import Outcome
from btb.simulation.result import Floats, Transfer
from btb.simulation.setups import SETUPS
from btb.simulation.summary import Comparison, Figures
from btb.simulation.wording import format_bytes

INK = "#1a1b1e"
COLOURS = ("#3d8fd1", "#e0862b", "#1fa37a", "#c774ad", "#b59a16", "#8b8f98", "#d1594a")
DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
MOVED = ((True, COLOURS[2], "used by a request"), (False, COLOURS[6], "never used"))
TIERS = {
    "hbm": ("computed here before", COLOURS[0]),
    "copied": ("copied from a peer", COLOURS[2]),
    "ram": ("own RAM", COLOURS[4]),
    "disk": ("own disk", COLOURS[3]),
}
WIDTH = 7.5
"""Of every figure, in inches."""

BINS = 80
CURVE_POINTS = 400
TRANSFERS_DRAWN = 1500
"""Most bars in one panel of the timeline; the largest are kept where there are more."""

STYLE: dict[Any, object] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "font.size": 10,
    "grid.alpha": 0.25,
    "grid.color": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "btb",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
"""Passed to `matplotlib.rc_context` around drawing and around saving."""


def typical_window(comparison: Comparison, setup: str) -> int:
    """Return the window whose mean TTFT under the baseline is the median of all windows'."""
    runs = comparison.runs[setup, comparison.policies[0]]
    means_s = [float(run.result.ttft_s.mean()) for run in runs]
    return sorted(range(len(runs)), key=means_s.__getitem__)[len(runs) // 2]


@mpl.rc_context(STYLE)
def draw_distributions(comparison: Comparison, setup: str) -> Figure:
    """Draw the share of requests that waited no longer than each time, one curve a policy."""
    figure, axes = _panel(3.4)
    for number, policy in enumerate(comparison.policies):
        ordered_s = np.sort(comparison.pooled_ttft_s(setup, policy))
        picked = np.unique(np.linspace(0, len(ordered_s) - 1, CURVE_POINTS).astype(int))
        shares = (picked + 1) / len(ordered_s)
        axes.plot(ordered_s[picked], shares * 100, label=policy, **_line(number))
    axes.set_xscale("log")
    axes.set_ylim(0, 101)
    _time_axis(axes.xaxis)
    axes.set_xlabel("TTFT, log scale")
    axes.set_ylabel("requests served by then, %")
    axes.grid(visible=True)
    _legend(figure, axes)
    return figure


@mpl.rc_context(STYLE)
def draw_over_time(comparison: Comparison, setup: str, window: int) -> Figure:
    """Draw arrivals, and below them the mean TTFT of those who arrived then, of one window."""
    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    runs = [comparison.runs[setup, policy][window] for policy in comparison.policies]
    arrived_s = runs[0].result.arrived_s
    edges_s = np.linspace(0.0, max(float(arrived_s.max()), 1.0), BINS + 1)
    counts, _ = np.histogram(arrived_s, edges_s)
    width_s = float(edges_s[1])
    above.stairs(counts / width_s, edges_s, fill=True, color=COLOURS[5], alpha=0.7)
    above.set_ylabel("arrivals/s")
    for number, (policy, run) in enumerate(zip(comparison.policies, runs, strict=True)):
        below.plot(*_binned(run, edges_s, counts), label=policy, **_line(number))
    below.set_yscale("log")
    _time_axis(below.yaxis)
    below.set_ylabel(f"mean TTFT in {width_s:.2g} s")
    below.set_xlabel("seconds into the window")
    below.grid(visible=True)
    _legend(figure, below)
    return figure


@mpl.rc_context(STYLE)
def draw_bytes(rows: Sequence[Figures]) -> Figure:
    """Draw what each policy had moved, split by whether a request used it."""
    figure, axes = _panel(0.9 + 0.4 * len(rows))
    names = [row.policy for row in rows]
    used = np.array([row.moved_bytes - row.wasted_bytes for row in rows])
    wasted = np.array([row.wasted_bytes for row in rows])
    places = np.arange(len(rows))
    (_, colour, label), (_, other_colour, other_label) = MOVED
    axes.barh(places, used, 0.6, color=colour, label=label)
    axes.barh(places, wasted, 0.6, left=used, color=other_colour, label=other_label)
    for place, row in enumerate(rows):
        text = format_bytes(row.moved_bytes) if row.moved_bytes else "nothing"
        right = (row.moved_bytes, place)
        axes.annotate(text, right, (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1.0, max(row.moved_bytes for row in rows)) * 1.15)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: format_bytes(count)))
    axes.set_xlabel("moved between replicas")
    _legend(figure, axes)
    return figure


@mpl.rc_context(STYLE)
def draw_hits(rows: Sequence[Figures]) -> Figure:
    """Draw where the prompt tokens came from that were not computed, one bar a policy."""
    figure, axes = _panel(0.9 + 0.4 * len(rows))
    places = np.arange(len(rows))
    left = np.zeros(len(rows))
    for tier in dict.fromkeys((*TIERS, *(name for row in rows for name in row.hit_rate_by_tier))):
        label, colour = TIERS.get(tier, (tier, COLOURS[1]))
        share = np.array([row.hit_rate_by_tier.get(tier, 0.0) * 100 for row in rows])
        if share.any():
            axes.barh(places, share, 0.6, left=left, color=colour, label=label)
        left += share
    axes.barh(places, 100 - left, 0.6, left=left, color=COLOURS[5], alpha=0.35, label="computed")
    axes.set_yticks(places, [row.policy for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("prompt tokens, %")
    _legend(figure, axes)
    return figure


@mpl.rc_context(STYLE)
def draw_transfers(comparison: Comparison, setup: str, window: int) -> Figure | None:
    """Draw what each policy had moved to which replica, and when; None where nothing moved."""
    moved = {
        policy: [
            one for one in comparison.runs[setup, policy][window].result.transfers if one.asked
        ]
        for policy in comparison.policies
    }
    moved = {policy: transfers for policy, transfers in moved.items() if transfers}
    if not moved:
        return None
    replicas = (
        SETUPS[setup].replicas
        if setup in SETUPS
        else (1 + max(one.target for transfers in moved.values() for one in transfers))
    )
    height = 1.1 + len(moved) * (0.5 + 0.22 * replicas)
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    panels = figure.subplots(len(moved), 1, sharex=True, squeeze=False)[:, 0]
    end_s = float(comparison.runs[setup, comparison.policies[0]][window].result.arrived_s.max())
    for axes, (policy, transfers) in zip(panels, moved.items(), strict=True):
        drawn = sorted(transfers, key=lambda one: -one.size_bytes)[:TRANSFERS_DRAWN]
        dropped = f", the {len(drawn):,} largest" if len(drawn) < len(transfers) else ""
        copies = "1 copy" if len(transfers) == 1 else f"{len(transfers):,} copies"
        axes.set_title(f"{policy}: {copies}{dropped}")
        _bars(axes, drawn, end_s)
        axes.set_yticks(range(replicas), [f"to {replica}" for replica in range(replicas)])
        axes.set_ylim(replicas - 0.5, -0.5)
        axes.set_xlim(0, max(end_s, 1.0))
    panels[-1].set_xlabel("seconds into the window")
    handles = [Patch(color=colour, label=label) for _, colour, label in MOVED]
    figure.legend(handles=handles, loc="outside upper left", ncols=2)
    return figure


def _panel(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _line(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "linewidth": 1.8,
    }


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(4, len(labels)))


def _time_axis(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(lambda seconds, _: _tick(seconds)))
    axis.set_minor_formatter(NullFormatter())


def _tick(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1.0 else f"{seconds * 1e3:g} ms"


def _binned(run: Outcome, edges_s: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Return the middle and the mean TTFT of each bin that has an arrival."""
    sums, _ = np.histogram(run.result.arrived_s, edges_s, weights=run.result.ttft_s)
    busy = counts > 0
    return ((edges_s[:-1] + edges_s[1:]) / 2)[busy], sums[busy] / counts[busy]


def _bars(axes: Axes, transfers: Sequence[Transfer], end_s: float) -> None:
    """Draw a bar a transfer, at least a hair wide: 13 ms in 400 s would not be seen."""
    hair_s = end_s / 400
    colours = {used: colour for used, colour, _ in MOVED}
    axes.barh(
        [one.target for one in transfers],
        [max(one.ended_s - one.started_s, hair_s) for one in transfers],
        0.7,
        left=[one.started_s for one in transfers],
        color=[colours[one.used] for one in transfers],
    )
