"""What `btb evaluate` keeps in MLflow: a run an evaluation, below it one a detector."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from btb import tracking
from btb.evaluation import RULES, SEEN, Evaluation
from btb.traces import Trace

EXPERIMENT = "btb evaluate"


def log_evaluation(
    outcome: Evaluation,
    windows: Sequence[Trace],
    params: Mapping[str, object],
    content: Mapping[str, Any],
) -> None:
    """Keep `outcome` with `params` and the traces' digests; `content` is its table as JSON.

    Models and rules get a run each, below the same one. Their step is the number of arrivals seen.

    Raises
    ------
    ConfigError
        If MLflow can't be reached.
    """
    names = " ".join(window.name for window in windows)[:500]
    title = f"{params['model']} on {windows[0].name}"
    with tracking.experiment(EXPERIMENT).run(title, params={**params, "traces": names}) as run:
        for window in windows:
            run.dataset(window.name, window.digest)
        run.metrics({"episodes": float(outcome.episodes), "bursts": float(outcome.bursts)})
        run.text("alarms.json", json.dumps(content, indent=1))
        run.figure("alarms.png", alarms_plot(outcome))
        for name in outcome.alarms:
            kind = "rule" if name in RULES else "model"
            with run.child(name, params={"detector": name, "kind": kind}) as child:
                _log_detector(child, outcome, name)


def _log_detector(run: tracking.Run, outcome: Evaluation, name: str) -> None:
    for seen in SEEN:
        point = outcome.point(name, seen)
        shares = {"precision": point.precision, "recall": point.recall, "f1": point.f1}
        run.metrics({key: share for key, share in shares.items() if share is not None}, step=seen)
    run.metric("withdrawn", float(outcome.alarms[name].withdrawn))
    lead = outcome.lead(name)
    if lead is not None:
        run.metrics({"lead_arrivals": lead[0], "lead_s": lead[1]})


def alarms_plot(outcome: Evaluation) -> Figure:
    """Return a plot of each detector's F1 by the arrivals of an episode that it has seen."""
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.subplots()
    for name in outcome.alarms:
        points = [(seen, outcome.point(name, seen).f1) for seen in SEEN]
        known = [(seen, f1) for seen, f1 in points if f1 is not None]
        dash = "--" if name in RULES else "-"
        axes.plot(
            [seen for seen, _ in known], [f1 for _, f1 in known], dash, marker="o", label=name
        )
    axes.set_xlabel("arrivals of the episode seen")
    axes.set_ylabel("F1 of the alarms by then")
    axes.set_ylim(0.0, 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure
