"""How many returning bursts are forecast before their first request, and how often in vain.

    .venv/bin/python -m benchmarks.recurring_alarms [--seeds 1,2,3] [--hours 4]

Family `recurring`: 40 jobs that come back every 5 to 30 min with 10 % jitter, 10 % of them missed,
among some 2,000 conversations; then the same with half of the jobs stopping for good. Every 5 s the
forecaster is asked what is due. An alarm opens when the probability of a burst within 60 s reaches
the threshold. It closes with the prefix's burst, or is withdrawn when the probability falls to half
the threshold; withdrawn without a burst, it was false, whether the burst was missed or never due.
A burst is foreseen if an alarm was open 5 s before its first request. Takes about two minutes.
"""

import argparse
import platform
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from btb.traces.generate import make_windows
from btb.traces.parameters import make_parameters
from btb.traces.workloads.base import BLOCK_TOKENS, Window
from forecasting.forecaster import BOUNDARY_TOKENS, Forecaster
from models import make_models

WITHIN_S = 60.0
TICK_S = 5.0
LEAD_S = 5.0
FROM_OCCURRENCE = 4
THRESHOLDS = (0.05, 0.1, 0.2, 0.4)
KEY_BLOCK = BOUNDARY_TOKENS // BLOCK_TOKENS - 1


@dataclass(slots=True)
class Tally:
    """What became of bursts and alarms at one threshold; `lead_s` of bursts that were foreseen.

    `after_stop` counts, for a job that stopped for good, the alarms that came after its last burst.
    """

    bursts: int = 0
    foreseen: int = 0
    alarms: int = 0
    false: int = 0
    lead_s: list[float] = field(default_factory=list)
    after_stop: list[int] = field(default_factory=list)

    def row(self, threshold: float) -> str:
        """Return a row of the table."""
        lead_s = sorted(self.lead_s)[len(self.lead_s) // 2] if self.lead_s else 0.0
        most = max(self.after_stop, default=0)
        foreseen = 100.0 * self.foreseen / max(self.bursts, 1)
        false = 100.0 * self.false / max(self.alarms, 1)
        return (
            f"| {threshold:g} | {self.bursts} | {foreseen:.1f} % | {self.alarms} | "
            f"{false:.1f} % | {lead_s:.0f} s | {most} |"
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--hours", type=float, default=4.0)
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    print(f"{platform.platform()}, Python {platform.python_version()}")
    for title, stopping in (("All jobs go on", 0.0), ("Half of the jobs stop for good", 0.5)):
        tallies = {threshold: Tally() for threshold in THRESHOLDS}
        began_s = time.process_time()
        for seed in seeds:
            run(given.hours * 3600.0, stopping, seed, tallies)
        spent_s = time.process_time() - began_s
        print(f"\n{title}: {len(seeds)} windows of {given.hours:g} h, {spent_s:.0f} s of CPU time")
        print("| threshold | bursts | foreseen | alarms | false | lead, median | after a stop |")
        print("|---|---|---|---|---|---|---|")
        for threshold, tally in tallies.items():
            print(tally.row(threshold))


def run(duration_s: float, stopping: float, seed: int, tallies: dict[float, Tally]) -> None:
    """Go through one generated window, and add what happened at each threshold."""
    settings = {
        "duration_s": f"{duration_s:g}",
        "jobs": "40",
        "stopping": f"{stopping:g}",
        "background_chats_per_s": f"{2000 / duration_s:g}",
    }
    parameters = make_parameters("recurring", settings)
    (window,) = make_windows("recurring", parameters, seed=seed, windows=1)
    told = probabilities(window)
    starts_s = burst_starts(window)
    for threshold, tally in tallies.items():
        for key in starts_s.keys() | told.keys():
            score(told.get(key, []), starts_s.get(key, []), threshold, tally, duration_s)


def probabilities(window: Window) -> dict[int, list[tuple[float, float]]]:
    """Return, by prefix, the times it was said to be due, with the probability within 60 s."""
    forecaster = Forecaster(make_models("ewma", [WITHIN_S]))
    told: dict[int, list[tuple[float, float]]] = defaultdict(list)
    ticks_s = 0.0
    for arrival in window.arrivals:
        while ticks_s < arrival.at_s:
            forecaster.advance(ticks_s)
            for one in forecaster.due(ticks_s, WITHIN_S):
                told[one.prefix.key].append((ticks_s, one.returns[WITHIN_S]))
            ticks_s += TICK_S
        forecaster.observe(arrival)
    return told


def burst_starts(window: Window) -> dict[int, list[float]]:
    """Return when the bursts of each job began, by the prefix that forecasts are about."""
    by_job: dict[str, list[float]] = defaultdict(list)
    keys: dict[str, int] = {}
    chains = {block: one.chain for one in window.arrivals for block in one.chain[-64:]}
    for burst in window.bursts:
        by_job[burst.kind].append(burst.start_s)
        keys[burst.kind] = chains[burst.prefix_key][KEY_BLOCK]
    return {keys[job]: starts_s for job, starts_s in by_job.items()}


def score(
    told: list[tuple[float, float]],
    starts_s: list[float],
    threshold: float,
    tally: Tally,
    end_s: float,
) -> None:
    """Add up the alarms of one prefix and what became of its bursts, from the fourth on."""
    alarms = alarm_spans(told, starts_s, threshold)
    counted = Counter[str]()
    since_s = starts_s[FROM_OCCURRENCE - 2] if len(starts_s) >= FROM_OCCURRENCE - 1 else None
    for opened_s, closed_s, burst in alarms:
        if burst is None and closed_s >= end_s - TICK_S:
            continue  # still open when the window ends
        if starts_s and (since_s is None or opened_s <= since_s):
            continue  # an earlier occurrence's
        counted["alarms"] += 1
        counted["false"] += burst is None
        counted["late"] += bool(starts_s) and opened_s > starts_s[-1]
    opened = {burst: opened_s for opened_s, _, burst in alarms if burst is not None}
    for number, start_s in enumerate(starts_s):
        if number < FROM_OCCURRENCE - 1:
            continue
        tally.bursts += 1
        lead_s = start_s - opened.get(number, start_s)
        if lead_s >= LEAD_S:
            tally.foreseen += 1
            tally.lead_s.append(lead_s)
    tally.alarms += counted["alarms"]
    tally.false += counted["false"]
    if starts_s:
        tally.after_stop.append(counted["late"])


def alarm_spans(
    told: list[tuple[float, float]], starts_s: list[float], threshold: float
) -> list[tuple[float, float, int | None]]:
    """Return when each alarm opened and closed, and the number of the burst that closed it."""
    spans: list[tuple[float, float, int | None]] = []
    opened_s: float | None = None
    number, last_s = 0, 0.0
    events = sorted([(at_s, 1, p) for at_s, p in told] + [(at_s, 0, 0.0) for at_s in starts_s])
    for at_s, is_told, chance in events:
        if opened_s is not None and at_s > last_s + TICK_S:
            spans.append((opened_s, last_s + TICK_S, None))  # not told any more: withdrawn
            opened_s = None
        if not is_told:
            if opened_s is not None:
                spans.append((opened_s, at_s, number))
                opened_s = None
            number += 1
            continue
        last_s = at_s
        if opened_s is None and chance >= threshold:
            opened_s = at_s
        elif opened_s is not None and chance < threshold / 2.0:
            spans.append((opened_s, at_s, None))
            opened_s = None
    if opened_s is not None:
        spans.append((opened_s, last_s, None))
    return spans


if __name__ == "__main__":
    main()
