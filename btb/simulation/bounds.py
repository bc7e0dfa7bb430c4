"""What no policy can do better than, however clever, on the arrivals of a window."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from btb.simulation.runs import cut_into_runs
from btb.simulation.setups import Setup
from btb.simulation.summary import Figures
from btb.simulation.wording import format_time
from forecasting.arrival import Arrival


@dataclass(frozen=True, slots=True)
class Bound:
    """The least mean and p95 TTFT, in seconds, that any causal policy could reach."""

    ttft_mean_s: float
    ttft_p95_s: float


def against_bound(setup: str, bound: Bound, rows: Sequence[Figures]) -> str:
    """Return in a sentence how far each policy's mean TTFT on `setup` is from the bound."""
    times = ", ".join(
        f"{row.policy} {row.ttft_mean_s / bound.ttft_mean_s:.3g}"
        for row in rows
        if row.setup == setup
    )
    return (
        f"{setup}: without foresight of a burst's first request no policy gets below a mean TTFT "
        f"of {format_time(bound.ttft_mean_s)} or a p95 of {format_time(bound.ttft_p95_s)}; mean "
        f"TTFT in times of that: {times}."
    )


def lower_bound(setup: Setup, windows: Sequence[Sequence[Arrival]]) -> Bound:
    """Return what no policy gets below on the causal engine that foresees no first request.

    Moving KV is free here, nothing is evicted, decoding takes no time, and each block is computed
    once, for the first request that brings it. Then

    - no request is served sooner than its own new tokens can be computed on one replica, and
    - all together not sooner than by one replica that is as fast as all of them and always works
      on the request with the least left (SRPT, which has the least mean: Schrage 1968).

    A policy that computes a prefix before anybody has asked for it is not bound by this.
    """
    own_s = [own_work_s(setup, arrivals) for arrivals in windows]
    pooled_s = [
        _srpt_s([a.at_s for a in arrivals], (works_s / setup.replicas).tolist())
        for arrivals, works_s in zip(windows, own_s, strict=True)
    ]
    own, pooled = np.sort(np.concatenate(own_s)), np.concatenate(pooled_s)
    return Bound(max(float(own.mean()), float(pooled.mean())), float(own[int(0.95 * len(own))]))


def own_work_s(setup: Setup, arrivals: Sequence[Arrival]) -> NDArray[np.float64]:
    """Return the seconds to compute what each request is the first to bring, its last token too."""
    runs = cut_into_runs(arrivals)
    seen: set[int] = set()
    works_s = np.zeros(len(arrivals))
    for index, (arrival, path) in enumerate(zip(arrivals, runs.paths, strict=True)):
        known_blocks = sum(runs.blocks[run] for run in path if run in seen)
        seen.update(path)
        known = min(known_blocks * arrival.block_tokens, arrival.input_tokens - 1)
        works_s[index] = setup.prefill_s(arrival.input_tokens - known, known)
    return works_s


def _srpt_s(arrived_s: Sequence[float], works_s: Sequence[float]) -> NDArray[np.float64]:
    """Return how long each job is in a single server that always serves the one with least left."""
    spent_s = np.zeros(len(arrived_s))
    left: list[tuple[float, int]] = []
    now_s = 0.0

    def serve(until_s: float) -> None:
        nonlocal now_s
        while left and now_s < until_s:
            work_s, job = heappop(left)
            if now_s + work_s <= until_s:
                now_s += work_s
                spent_s[job] = now_s - arrived_s[job]
            else:
                heappush(left, (work_s - (until_s - now_s), job))
                now_s = until_s
        now_s = max(now_s, until_s) if until_s != np.inf else now_s

    for job, at_s in enumerate(arrived_s):
        serve(at_s)
        heappush(left, (works_s[job], job))
    serve(np.inf)
    return spent_s
