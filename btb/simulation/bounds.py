"""What no policy can do better than, however clever, on the arrivals of a window."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

import numpy as np

from btb.simulation.result import Floats
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


@dataclass(frozen=True, slots=True)
class Regret:
    """How many times a policy's mean and p95 TTFT are the bound's, and those of `clairvoyant`."""

    setup: str
    policy: str
    mean_over_bound: float
    p95_over_bound: float
    mean_over_clairvoyant: float
    p95_over_clairvoyant: float


def regrets(bounds: Mapping[str, Bound], rows: Sequence[Figures]) -> list[Regret]:
    """Return a row for each of `rows`, held against its setup's bound and `clairvoyant` row."""
    best = {row.setup: row for row in rows if row.policy.partition(":")[0] == "clairvoyant"}
    return [
        Regret(
            row.setup,
            row.policy,
            row.ttft_mean_s / bounds[row.setup].ttft_mean_s,
            row.ttft_p95_s / bounds[row.setup].ttft_p95_s,
            row.ttft_mean_s / best[row.setup].ttft_mean_s,
            row.ttft_p95_s / best[row.setup].ttft_p95_s,
        )
        for row in rows
    ]


def bound_sentence(setup: str, bound: Bound) -> str:
    """Return in a sentence what the bound of `setup` is."""
    return (
        f"{setup}: without foresight of a burst's first request no policy gets below a mean TTFT "
        f"of {format_time(bound.ttft_mean_s)} or a p95 of {format_time(bound.ttft_p95_s)}."
    )


def lower_bound(setup: Setup, windows: Sequence[Sequence[Arrival]]) -> Bound:
    """Return what no policy gets below on the causal engine that foresees no first request.

    Moving KV is free here, nothing is evicted, decoding takes no time, and each block is computed
    once. A request's own work is to compute the blocks that it is the first to bring, or its last
    token. That can begin once the request has come and the blocks before them can exist: a block
    exists at the earliest when those before it do, its first request has come, and it has been
    computed after that on one replica. Call this the request's release. Then

    - no request is served sooner than its release and its own work, so neither are the mean and,
      request by request in order, the p95;
    - all together are not sooner than on one replica as fast as all R of them, which may take up
      a request at its release and always works on the one with the least left (SRPT has the least
      sum of completion times: Schrage 1968);
    - nor than by mean busy times. Let M be the mean of the times at which a request's own work w,
      in seconds on one replica, is done. It is done at a rate of at most 1, so the request is
      complete no sooner than M + w / 2. The replicas do R seconds of work a second at most, and
      then the sum of M is least if the shortest w released always goes first (Goemans, Queyranne,
      Schulz, Skutella & Wang 2002, theorem 2.3).

    Work counts for the request whose own it is, whoever's prompt it was done for, so it doesn't
    matter which of two requests for a prefix goes first. The mean is the largest of the three.

    A policy that computes a prefix before anybody has asked for it is not bound by this.
    """
    alone, means = [], []
    for arrivals in windows:
        arrived_s = np.array([arrival.at_s for arrival in arrivals])
        released_s, works_s = _releases_and_works(setup, arrivals)
        alone.append(released_s + works_s - arrived_s)
        shares_s = works_s / setup.replicas
        together_s = _srpt_s(released_s, shares_s) - arrived_s
        busy_s = _mean_busy_s(released_s, shares_s) + works_s / 2 - arrived_s
        means.append((alone[-1].sum(), together_s.sum(), busy_s.sum()))
    own_s = np.sort(np.concatenate(alone))
    # Each window has its own best argument.
    mean_s = sum(max(sums) for sums in means) / len(own_s)
    return Bound(float(mean_s), float(own_s[int(0.95 * len(own_s))]))


def alone_s(setup: Setup, arrivals: Sequence[Arrival]) -> Floats:
    """Return what no request's TTFT gets below by itself: the first argument of `lower_bound`."""
    released_s, works_s = _releases_and_works(setup, arrivals)
    arrived_s: Floats = np.array([arrival.at_s for arrival in arrivals])
    return released_s + works_s - arrived_s


def _releases_and_works(setup: Setup, arrivals: Sequence[Arrival]) -> tuple[Floats, Floats]:
    """Return when each request's own work can begin, and how many seconds of it there are."""
    runs = cut_into_runs(arrivals)
    exists_s: dict[int, float] = {}
    released_s, works_s = np.zeros(len(arrivals)), np.zeros(len(arrivals))
    for index, (arrival, path) in enumerate(zip(arrivals, runs.paths, strict=True)):
        known_blocks, start_s = 0, arrival.at_s
        for run in path:
            if run in exists_s:
                known_blocks += runs.blocks[run]
                start_s = max(start_s, exists_s[run])
        known = min(known_blocks * arrival.block_tokens, arrival.input_tokens - 1)
        if known_blocks * arrival.block_tokens > known:
            # All of it is known. The last token is computed all the same, at the same time even.
            start_s = max(arrival.at_s, start_s - setup.prefill_s(1, known))
        released_s[index] = start_s
        works_s[index] = setup.prefill_s(arrival.input_tokens - known, known)
        blocks = 0
        for run in path:
            blocks += runs.blocks[run]
            if run not in exists_s:
                tokens = min(blocks * arrival.block_tokens, arrival.input_tokens)
                exists_s[run] = start_s + setup.prefill_s(tokens - known, known)
    return released_s, works_s


def _srpt_s(released_s: Floats, works_s: Floats) -> Floats:
    """Return when each job is done by a single server that serves the one with the least left."""
    done_s = np.zeros(len(released_s))
    for _, end_s, job in _spans(released_s, works_s, left_counts=True):
        done_s[job] = end_s
    return done_s


def _mean_busy_s(released_s: Floats, works_s: Floats) -> Floats:
    """Return the mean time at which each job is served, if the shortest job is always served."""
    mean_s = np.zeros(len(released_s))
    for start_s, end_s, job in _spans(released_s, works_s, left_counts=False):
        mean_s[job] += (end_s - start_s) * (start_s + end_s) / 2 / works_s[job]
    return mean_s


def _spans(
    released_s: Floats, works_s: Floats, *, left_counts: bool
) -> Iterator[tuple[float, float, int]]:
    """Yield from when to when a single server serves which job.

    It serves the one with the least left, or, without `left_counts`, with the least work in all.
    """
    order = np.argsort(released_s, kind="stable")
    waiting: list[tuple[float, int, float]] = []
    now_s = 0.0
    for place, job in enumerate(order.tolist()):
        now_s = max(now_s, float(released_s[job]))
        heappush(waiting, (float(works_s[job]), job, float(works_s[job])))
        last = place + 1 == len(order)
        until_s = inf if last else float(released_s[order[place + 1]])
        while waiting and now_s < until_s:
            key, served, left_s = heappop(waiting)
            end_s = min(now_s + left_s, until_s)
            yield now_s, end_s, served
            left_s -= end_s - now_s
            now_s = end_s
            if end_s == until_s and left_s > 0.0:
                heappush(waiting, (left_s if left_counts else key, served, left_s))
