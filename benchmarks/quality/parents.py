"""Agents that fan out: told by their parent's request alone, before the first child."""

from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.quality.row import Row, at_least
from benchmarks.quality.traces import generated
from btb.traces.workloads.base import Window
from forecasting.forecaster import Forecaster
from models import make_models

CHILDREN = 4
"""A fan-out is forecast where so many requests more are likelier than not within a minute."""

FIRST_S = 600.0
"""Parents of the first ten minutes teach what a template is like, and are not counted."""

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "orchestrators fan out 95 %, others 2 %": {"fanning": "0.95", "stray": "0.02"},
    "orchestrators fan out 80 %, others 5 %": {},
}


def rows(seeds: Sequence[int]) -> list[Row]:
    """Return the rows of show 3: F1 of the forecast, and of one who knows each template."""
    found: list[Row] = []
    for title, settings in SETTINGS.items():
        tally: Counter[tuple[bool, bool]] = Counter()
        for seed in seeds:
            (window,) = generated("agents", {"duration_s": "3600", **settings}, seed)
            tally += outcomes(window)
        fans = float(settings.get("fanning", "0.8")), float(settings.get("stray", "0.05"))
        known = 2.0 * fans[0] / (fans[0] + 1.0 + fans[1])
        parents = sum(tally.values())
        found.append(at_least("3", f"agents, {title}: F1 over {parents} parents", f1(tally), 0.9))
        found.append(Row("3", f"agents, {title}: F1 of one who knows both shares", known))
    return found


def outcomes(window: Window) -> Counter[tuple[bool, bool]]:
    """Count (forecast, came) over the parents of a window."""
    fanning = {burst.prefix_key for burst in window.bursts}
    forecaster = Forecaster(make_models("ewma"))
    tally: Counter[tuple[bool, bool]] = Counter()
    sessions: set[str] = set()
    for arrival in window.arrivals:
        forecaster.observe(arrival)
        parent = arrival.session not in sessions and "/" not in arrival.session
        sessions.add(arrival.session)
        if not parent or arrival.at_s < FIRST_S:
            continue
        key = arrival.chain[arrival.input_tokens // arrival.block_tokens - 1]
        told = forecaster.forecast(key, arrival.at_s)
        likely = told is not None and told.counts[60.0].at_least(CHILDREN) >= 0.5
        tally[likely, key in fanning] += 1
    return tally


def f1(tally: Counter[tuple[bool, bool]]) -> float:
    """Return the harmonic mean of precision and recall."""
    true = tally[True, True]
    return 2.0 * true / (2.0 * true + tally[True, False] + tally[False, True])
