"""The traffic that `benchmarks/policies.py` measures policies on."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from btb.traces import ReaderOptions, open_windows
from btb.traces.generate import article_windows, make_windows, read_article
from btb.traces.parameters import make_parameters
from btb.traces.workloads.base import Window

SEED = 20261
"""Own windows are made from this; nothing was tuned on them."""

ARTICLE = ("b60", "b1")
"""Sets of the article's windows, for scoring only."""

REAL: Mapping[str, tuple[str, str | None]] = {
    "conversation": ("mooncake_conversation_trace.jsonl.zst", None),
    "synthetic": ("mooncake_synthetic_trace.jsonl.zst", None),
    "kvct_v8": ("kvct_v8_local_sessions.compact.jsonl.zst", None),
}
"""Real logs. Sessions of the last one have no common clock: they start within an hour."""

GENERATED: Mapping[str, tuple[str, dict[str, str]]] = {
    "recurring": ("recurring", {}),
    "agents": ("agents", {}),
    "ramp": ("ramp", {}),
    "ordinary": ("ordinary", {}),
    "fanout": ("fanout", {}),
    "decoys": ("fanout", {"decoys": "480", "decoy_repeats": "2"}),
}
"""Families with their settings; `fanout` has the article's shape, from own seeds."""


def describe(name: str) -> str:
    """Return all that the windows of a workload depend on, for the name of a kept result."""
    return f"{name} {GENERATED.get(name, REAL.get(name))} {SEED}"


@lru_cache(maxsize=2)
def window(name: str, number: int, shared: Path, limit: int) -> Window:
    """Return window `number` of a workload; `shared` holds reference and data.

    Of a real log the first `limit` requests, all with 0.
    """
    if name in ARTICLE:
        given, _ = read_article(shared / "reference" / "windows.json", name)
        return list(article_windows(given))[number]
    if name in REAL:
        file, fmt = REAL[name]
        (trace,) = open_windows([shared / "data" / file], fmt=fmt, options=ReaderOptions())
        arrivals = tuple(trace)
        return Window(arrivals[:limit] if limit else arrivals, ())
    family, settings = GENERATED[name]
    parameters = make_parameters(family, settings)
    return list(make_windows(family, parameters, seed=SEED, windows=number + 1))[number]
