"""Generated windows as traces in a folder that goes away again."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from btb.traces import Trace, open_windows
from btb.traces.generate import make_windows, write_windows
from btb.traces.parameters import make_parameters
from btb.traces.workloads.base import Burst, Window
from forecasting.arrival import Arrival

ID_RANGE = 10_000_000
"""Block ids of one part of a joined window; none has so many blocks."""


@contextmanager
def opened(windows: Sequence[Window]) -> Iterator[list[Trace]]:
    """Yield `windows` as they are read from files."""
    with tempfile.TemporaryDirectory() as folder:
        write_windows(Path(folder), windows, {})
        yield open_windows([Path(folder)])


def generated(
    family: str, settings: Mapping[str, str], seed: int, windows: int = 1
) -> list[Window]:
    """Return windows of a family."""
    parameters = make_parameters(family, dict(settings))
    return list(make_windows(family, parameters, seed=seed, windows=windows))


def joined(parts: Sequence[Window], starts_s: Sequence[float]) -> Window:
    """Return one window of several that begin at `starts_s`, no prefix of one known to another."""
    arrivals: list[Arrival] = []
    bursts: list[Burst] = []
    for number, (part, start_s) in enumerate(zip(parts, starts_s, strict=True)):
        first = number * ID_RANGE
        arrivals += (
            replace(
                one,
                at_s=one.at_s + start_s,
                chain=tuple(block + first for block in one.chain),
                session=f"{number}/{one.session}" if one.session else "",
            )
            for one in part.arrivals
        )
        bursts += (
            replace(
                one,
                start_s=one.start_s + start_s,
                end_s=one.end_s + start_s,
                prefix_key=one.prefix_key + first,
            )
            for one in part.bursts
        )
    arrivals.sort(key=lambda one: one.at_s)
    bursts.sort(key=lambda one: one.start_s)
    return Window(tuple(arrivals), tuple(bursts))
