"""What `btb train` keeps in MLflow: a run a training, below it one a learner, and the model."""

import json
from collections.abc import Callable, Mapping, Sequence

from btb import registry, tracking
from btb.commands.train_tables import as_json, shown
from btb.contest import Verdict
from btb.errors import ConfigError
from btb.traces import Trace
from btb.training import Pass, trained
from btb.training_plots import calibration_plot, loss_plot
from models.checkpoint import Checkpoint
from models.state import State

EXPERIMENT = "btb train"

Learn = Callable[[Checkpoint, Sequence[Trace], Checkpoint | None, bool], Pass]
"""Trains the first beside the champion, which predicts but doesn't learn where the last is true."""


def train_logged(
    start: Checkpoint,
    windows: Sequence[Trace],
    name: str,
    settings: Mapping[str, object],
    learn: Learn,
) -> tuple[Pass, str]:
    """Train `start` beside the champion of `name`, keep all in MLflow, and say who is champion now.

    `settings` are stored as they are, `learn` does the training. Returns its outcome too.

    Raises
    ------
    ConfigError
        If `name` can't be one, MLflow can't be reached, or the champion can't be read.
    """
    registry.check_name(name)
    params = {
        **settings,
        "boundary_tokens": start.boundary_tokens,
        "traces": " ".join(window.name for window in windows)[:500],
    }
    title = f"{start.name} on {windows[0].name}"
    with tracking.experiment(EXPERIMENT).run(title, params=params) as run:
        reigning = registry.champion(run.mlflow, name)
        champion = None if reigning is None else reigning[1]
        if champion is not None and champion.models.keys() != start.models.keys():
            raise ConfigError(
                f"the champion of {name!r} forecasts other horizons; take another --name"
            )
        # Two that start alike and learn alike are alike: what counts then is what learning brings.
        same = champion is not None and _states(champion) == _states(start)
        outcome = learn(start, windows, champion, same)
        for window in windows:
            run.dataset(window.name, window.digest)
        run.text("scores.json", json.dumps(as_json(outcome, windows), indent=1))
        _log_scores(run, outcome, start.name)
        registered = registry.register(run, name, trained(start, windows))
        hint = _hint(champion, windows, same)
        against = None if reigning is None else reigning[0]
        return outcome, _crown(run, registered, against, outcome.verdict, hint)


def _states(checkpoint: Checkpoint) -> dict[float, State]:
    return {horizon_s: model.to_state() for horizon_s, model in checkpoint.models.items()}


def _log_scores(run: tracking.Run, outcome: Pass, trained_name: str) -> None:
    run.figure("calibration.png", calibration_plot(outcome, trained_name))
    best = outcome.best_baseline(outcome.headline_s)
    run.figure("loss.png", loss_plot(outcome, [*shown(outcome, trained_name), best]))
    run.metrics(_metrics(outcome, trained_name))
    for name in outcome.qualities:
        with run.child(name, params={"learner": name}) as child:
            child.metrics(_metrics(outcome, name))
            curve = outcome.qualities[name][outcome.headline_s].curve()
            child.curve(f"deviance_by_labels_{outcome.headline_s:g}s", curve)


def _metrics(outcome: Pass, name: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for horizon_s in outcome.unlabelled:
        scores = outcome.scores(name, horizon_s)
        late = outcome.scores(name, horizon_s, since=0.5)
        at = f"_{horizon_s:g}s"
        found |= {
            f"deviance{at}": scores.deviance,
            f"deviance_second_half{at}": late.deviance,
            f"crps{at}": scores.crps,
            f"pinball{at}": scores.pinball,
            f"coverage{at}": scores.coverage,
            f"skill{at}": outcome.skill(name, horizon_s),
            f"labels{at}": float(scores.labels),
        }
    return found


def _hint(champion: Checkpoint | None, windows: Sequence[Trace], same: bool) -> str:
    """Say what the comparison with the champion has to be read with."""
    if same:
        return ", which it went on from; the old one did not learn here"
    known = set(champion.traces.values()) if champion is not None else set()
    if known & {window.digest for window in windows}:
        return "; the old one had learnt from this trace before"
    return ""


def _crown(
    run: tracking.Run,
    registered: registry.Registered,
    champion: registry.Registered | None,
    verdict: Verdict | None,
    hint: str,
) -> str:
    """Make the new model champion if it is better than the old one, and say whether and why."""
    if champion is None or verdict is None:
        registry.crown(run.mlflow, registered)
        return f"Registered as {registered.spec} and, being the first, {registered.champion_spec}."
    reason = f"{verdict.reason}{hint}"
    told = registry.Evidence(champion.version, verdict.better, reason)
    registry.testify(run.mlflow, registered, registry.TRAINED, told)
    if verdict.better:
        registry.crown(run.mlflow, registered)
        return f"Registered as {registered.spec}, now {registered.champion_spec}: {reason}."
    registry.challenge(run.mlflow, registered)
    kept = f"{champion.spec} stays champion"
    return f"Registered as {registered.spec}, the challenger; {kept}: {reason}."
