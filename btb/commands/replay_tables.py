"""What `btb replay` tells in the end: one line, errors by kind, and a table by horizon."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from btb.service.replay import Replay


def result_of(done: "Replay", trace: str) -> dict[str, Any]:
    """Return what came of a replay, ready for JSON. Times are seconds."""
    tally, scores = done.tally, done.scores
    return {
        "trace": trace,
        "stopped": tally.stopped,
        "sent": tally.sent,
        "accepted": tally.accepted,
        "errors": dict(tally.errors),
        "seconds": tally.ran_s,
        "arrivals_s": tally.accepted / tally.ran_s if tally.ran_s else 0.0,
        "latency_p50_s": _quantile(tally.latency_s, 0.5),
        "latency_p99_s": _quantile(tally.latency_s, 0.99),
        "lag_p50_s": _quantile(tally.lag_s, 0.5),
        "lag_max_s": max(tally.lag_s, default=0.0),
        "unfinished_forecasts": scores.unfinished,
        "horizons": [
            {
                "horizon_s": horizon_s,
                "forecasts": score.forecasts,
                "mean_forecast": score.mean / score.forecasts,
                "mean_came": score.came / score.forecasts,
                "mean_error": score.error / score.forecasts,
                "inside_share": score.inside / score.forecasts,
            }
            for horizon_s, score in sorted(scores.by_horizon.items())
            if score.forecasts
        ],
    }


def _quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of `values` don't exceed, 0 where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def show_result(result: dict[str, Any], console: Console) -> None:
    """Print what `result_of` returned."""
    console.print(
        f"{result['trace']}: {result['sent']:,} sent in {result['seconds']:.1f} s, "
        f"{result['accepted']:,} accepted ({result['arrivals_s']:.0f} a second); "
        f"a batch is answered in {result['latency_p50_s'] * 1e3:.1f} ms (p50), "
        f"{result['latency_p99_s'] * 1e3:.1f} ms (p99); "
        f"at most {result['lag_max_s']:.2f} s late",
        highlight=False,
    )
    if result["stopped"]:
        console.print("Stopped before the end of the trace.")
    for kind, times in result["errors"].items():
        console.print(f"[red]error[/]: {kind}, {times} times", highlight=False)
    if not result["horizons"]:
        console.print("No forecast to compare: none was given whose horizon ended in time.")
        return
    table = Table(box=SIMPLE_HEAD, title="Forecast against what came, hottest prefixes")
    for name in ("horizon", "forecasts", "said", "came", "off by", "in the 80 % interval"):
        table.add_column(name, justify="right")
    for one in result["horizons"]:
        table.add_row(
            f"{one['horizon_s']:g} s",
            f"{one['forecasts']:,}",
            f"{one['mean_forecast']:.2f}",
            f"{one['mean_came']:.2f}",
            f"{one['mean_error']:.2f}",
            f"{one['inside_share']:.0%}",
        )
    console.print(table)
    if result["unfinished_forecasts"]:
        console.print(
            f"{result['unfinished_forecasts']:,} forecasts looked past the end and are left out."
        )
