"""Plots of a training pass: is the forecast right on average, and how did the loss go."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from btb.training import Pass

SIZE_IN = (7.0, 4.5)

FEWEST = 20
"""Forecasts in a calibration bin that are worth a point."""


def calibration_plot(outcome: Pass, name: str) -> Figure:
    """Return a plot of what came against what was forecast, a line a horizon, log scales.

    Points are means over forecasts of about the same size; on the diagonal, forecasts are right on
    average. Where nothing came at all there is no point.
    """
    figure, axes = _blank("requests forecast", "requests that came")
    for horizon_s, quality in outcome.qualities[name].items():
        bins = [one for one in quality.calibration() if one.labels >= FEWEST and one.came > 0.0]
        if bins:
            forecast, came = [one.forecast for one in bins], [one.came for one in bins]
            axes.plot(forecast, came, marker="o", markersize=3, label=f"{horizon_s:g} s ahead")
    axes.set_xscale("log")
    axes.set_yscale("log")
    low = min(axes.get_xlim()[0], axes.get_ylim()[0])
    high = max(axes.get_xlim()[1], axes.get_ylim()[1])
    axes.plot([low, high], [low, high], color="0.6", linewidth=0.8, zorder=0)
    axes.set_title(f"{name}: forecast against what came")
    axes.legend(frameon=False)
    return figure


def loss_plot(outcome: Pass, names: Sequence[str]) -> Figure:
    """Return a plot of each learner's Poisson deviance over the pass, at the headline horizon.

    Each step is the mean over a stretch of as many forecasts as the others. The first name gets
    the thick line.
    """
    figure, axes = _blank("forecasts scored so far", "Poisson deviance")
    for name in dict.fromkeys(names):
        points = outcome.qualities[name][outcome.headline_s].curve()
        if points:
            ends = [end for end, _ in points]
            edges = [0, *ends]
            width = 2.0 if name == names[0] else 1.0
            losses = [loss for _, loss in points]
            axes.stairs(losses, edges, label=name, baseline=None, linewidth=width)
    axes.set_ylim(bottom=0.0)
    axes.set_title(f"Loss at {outcome.headline_s:g} s, lower is better")
    axes.legend(frameon=False)
    return figure


def _blank(across: str, up: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE_IN, layout="constrained")  # draws with Agg, opens no window
    axes = figure.subplots()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
