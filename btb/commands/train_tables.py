"""What `btb train` says in the terminal and in JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from btb.traces import Trace
from btb.training import CHAMPION, Pass


def print_pass(outcome: Pass, names: Sequence[str], console: Console) -> None:
    """Print a table with the learners `names` and the best EWMA, by horizon."""
    columns = ("horizon", "learner", "deviance", "2nd half", "CRPS", "skill", "in 80 %")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 1 else "right", no_wrap=True)
    for horizon_s in outcome.unlabelled:
        best = outcome.best_baseline(horizon_s)
        for number, name in enumerate((*names, best)):
            scores = outcome.scores(name, horizon_s)
            late = outcome.scores(name, horizon_s, since=0.5)
            table.add_row(
                f"{horizon_s:g} s" if number == 0 else "",
                escape(name),
                f"{scores.deviance:.3g}",
                f"{late.deviance:.3g}",
                f"{scores.crps:.3g}",
                _skill(outcome, name, horizon_s),
                f"{100.0 * scores.coverage:.1f}",
                end_section=name == best,
            )
    console.print(table)
    console.print(
        "Poisson deviance and CRPS: lower is better. Skill: share of the best EWMA's deviance that "
        "is saved; it is the best of four half-lives in hindsight. In 80 %: how much of the counts "
        "lies between the forecast's 10 % and 90 % quantiles; 80 is right.",
        style="dim",
        highlight=False,
    )


def print_windows(windows: Sequence[Trace], outcome: Pass, console: Console) -> None:
    """Print what was read, what was left out, and what of it could be forecast."""
    for window in windows:
        report = window.report
        for note in report.notes:
            console.print(f"note: {escape(window.name)}: {escape(note)}", highlight=False)
        if report.bad or report.late:
            first = f", the first {report.first_bad[0]}" if report.first_bad else ""
            console.print(
                f"note: {escape(window.name)}: {report.bad:,} bad and {report.late:,} late rows "
                f"left out{escape(first)}",
                highlight=False,
            )
    short = outcome.arrivals - outcome.samples
    told = f"; {short:,} are too short to be forecast" if short else ""
    ends = ", ".join(f"{count:,} at {h:g} s" for h, count in outcome.unlabelled.items())
    console.print(
        f"{outcome.arrivals:,} requests in {len(windows)} window{'s' * (len(windows) > 1)}{told}. "
        f"Not scored, for the trace ends before their horizon does: {ends}.",
        highlight=False,
    )
    if outcome.dropped:
        console.print(f"note: {outcome.dropped:,} forecasts dropped, too many were outstanding")


def shown(outcome: Pass, name: str) -> list[str]:
    """Return the learners worth a row beside the best EWMA: the trained one, champion, Hawkes."""
    return [one for one in dict.fromkeys((name, CHAMPION, "hawkes")) if one in outcome.qualities]


def verdict(outcome: Pass, name: str) -> str:
    """Return in one sentence what the learner is worth at the headline horizon."""
    horizon_s = outcome.headline_s
    best = outcome.best_baseline(horizon_s)
    scores = outcome.scores(name, horizon_s)
    against = [(best, "the best EWMA's"), ("hawkes", "Hawkes's")]
    if outcome.too_few(horizon_s):
        return (
            f"Only {scores.came * scores.labels:.0f} requests came within {horizon_s:g} s of "
            f"{scores.labels:,} forecasts: too few to tell {name} from a guess."
        )
    parts = [
        f"{_change(scores.deviance, outcome.scores(other, horizon_s).deviance)} {whose}"
        for other, whose in against
        if other != name
    ]
    followed = scores.came
    return (
        f"At {horizon_s:g} s, {name}'s Poisson deviance is {' and '.join(parts)}, over "
        f"{scores.labels:,} forecasts ({followed:.3g} more requests came on average)."
    )


def as_json(outcome: Pass, windows: Sequence[Trace]) -> dict[str, Any]:
    """Return all scores as plain JSON values."""
    results = []
    for name, by_horizon in outcome.qualities.items():
        for horizon_s in by_horizon:
            row = asdict(outcome.scores(name, horizon_s))
            late = asdict(outcome.scores(name, horizon_s, since=0.5))
            late["skill"] = outcome.skill(name, horizon_s, since=0.5)
            skill = outcome.skill(name, horizon_s)
            results.append(
                {
                    "learner": name,
                    "horizon_s": horizon_s,
                    **row,
                    "skill": skill,
                    "second_half": late,
                }
            )
    return {
        "traces": [
            {"name": one.name, "digest": one.digest, "rows": one.report.rows, "bad": one.report.bad}
            for one in windows
        ],
        "arrivals": outcome.arrivals,
        "samples": outcome.samples,
        "unlabelled": {f"{h:g}": count for h, count in outcome.unlabelled.items()},
        "dropped": outcome.dropped,
        "best_ewma": {f"{h:g}": outcome.best_baseline(h) for h in outcome.unlabelled},
        "results": results,
    }


def _skill(outcome: Pass, name: str, horizon_s: float) -> str:
    if name == outcome.best_baseline(horizon_s):
        return "best EWMA"
    if outcome.too_few(horizon_s):
        return "too few"
    return f"{100.0 * outcome.skill(name, horizon_s):+.1f} %"


def _change(value: float, other: float) -> str:
    percent = 100.0 * (value / other - 1.0)
    return f"{abs(percent):.1f} % {'below' if percent <= 0.0 else 'above'}"
