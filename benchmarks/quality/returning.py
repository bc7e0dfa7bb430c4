"""Jobs that return: how many of their bursts are foreseen."""

from collections.abc import Sequence

from benchmarks.quality.row import Row, at_least, at_most
from benchmarks.recurring_alarms import THRESHOLDS, Tally, run

HOURS_S = 4.0 * 3600.0
THRESHOLD = 0.1
MOST_AFTER_STOP = 3
assert THRESHOLD in THRESHOLDS


def rows(seeds: Sequence[int]) -> list[Row]:
    """Return the rows of show 2: 40 jobs among 2,000 ordinary prefixes; see `recurring_alarms`."""
    found: list[Row] = []
    for title, stopping in (("all go on", 0.0), ("half stop for good", 0.5)):
        tally = Tally()
        for seed in seeds:
            run(HOURS_S, stopping, seed, {THRESHOLD: tally})
        what = f"recurring, {title}, alarm at P = {THRESHOLD:g}"
        foreseen = 100.0 * tally.foreseen / tally.bursts
        false = 100.0 * tally.false / tally.alarms
        text = f"{what}: of {tally.bursts} bursts foreseen by 5 s"
        if stopping:
            most = float(max(tally.after_stop))
            found += [Row("2", text, foreseen, "%"), Row("2", f"{what}: false alarms", false, "%")]
            found.append(at_most("2", f"{what}: most alarms after a stop", most, MOST_AFTER_STOP))
        else:
            found.append(at_least("2", text, foreseen, 85.0, "%"))
            found.append(at_most("2", f"{what}: false alarms", false, 15.0, "%"))
    return found
