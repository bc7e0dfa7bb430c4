"""Onto how many replicas a prefix is brought for a burst, and from where, by what that is worth."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from forecasting.forecast import Prefix
from policies.base import Chain, ClusterView, Compute, Copy
from policies.waiting import Work, mean_wait_s

LEAST_SAVED_S = 0.1
"""Delay below which a copy beside another is left to the request that turns out to need it."""

LEAST_CHANCE = 0.1
"""Probability of a burst below which nothing is computed ahead of it."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds of delay that a second of a link, and one of compute that is evicted, are worth."""

    link: float
    evict: float


@dataclass(frozen=True, slots=True)
class Burst:
    """Requests that are expected for a prefix, all in all and in a second, if they come at all.

    `chance` is the probability that they do, `own_tokens` what each has beside the prefix,
    `begins_s` in how many seconds the first is expected.
    """

    chain: Chain
    block_tokens: int
    own_tokens: int
    chance: float
    requests: float
    rate_rps: float
    begins_s: float = 0.0

    @property
    def span_s(self) -> float:
        """Seconds from the first request to the last."""
        return self.requests / self.rate_rps

    @property
    def tokens(self) -> int:
        """Tokens of the prefix."""
        return len(self.chain) * self.block_tokens


def holders(chain: Chain, cluster: ClusterView) -> list[int]:
    """Return the replicas that have all of `chain` in HBM, or will have."""
    here, coming = cluster.resident_blocks(chain), cluster.pending(chain)
    return [
        replica
        for replica, blocks in enumerate(here)
        if max(blocks, coming[replica][0]) >= len(chain)
    ]


def bring(burst: Burst, cluster: ClusterView, prices: Prices, now_s: float) -> Copy | None:
    """Return the cheapest way to get into HBM what no replica has there, if that is worth it.

    The first request would wait w seconds for it, and those that come meanwhile for what is left
    of w: saved is chance · w · (1 + rate · w / 2). If the burst comes, the KV has to be moved
    anyway, so the move is a loss only if it does not.
    """
    stored, here = cluster.stored_blocks(burst.chain), cluster.resident_blocks(burst.chain)
    depth = max(stored)
    if 2 * depth < len(burst.chain):
        return None
    free_bytes = cluster.free_bytes()
    best: tuple[float, float, int, int] = (inf, inf, -1, -1)
    for source in (one for one, blocks in enumerate(stored) if blocks == depth):
        for target, blocks in enumerate(here):
            size_bytes = (depth - blocks) * cluster.block_bytes
            took_s = cluster.load_s(source, burst.chain)  # a disk may be slower than the NICs
            if source != target:
                took_s = max(took_s, cluster.copy_s(source, target, size_bytes))
            price_s = prices.link * took_s
            if free_bytes[target] < size_bytes:
                price_s += prices.evict * took_s
            best = min(best, (price_s, took_s, source, target))
    price_s, took_s, source, target = best
    wait_s = min(took_s, cluster.prefill_s(depth * burst.block_tokens, 0))
    saved_s = burst.chance * wait_s * (1.0 + burst.rate_rps * wait_s / 2)
    if saved_s <= (1.0 - burst.chance) * price_s:
        return None
    return _copy(burst, depth, source, target, saved_s, took_s, cluster, now_s)


def spread(
    burst: Burst,
    held: Sequence[int],
    work: Work,
    cluster: ClusterView,
    prices: Prices,
    now_s: float,
) -> list[Copy]:
    """Return the copies beside those on `held` that shorten waits by more than they cost.

    The k-th is worth chance · requests · (W(k - 1) - W(k)), with the mean wait W for one of k
    replicas that are busy with what they do anyway and with their part of the burst. `requests`
    are those that come once the copy is there.
    """
    names = cluster.replicas
    copies: list[Copy] = []
    size_bytes = len(burst.chain) * cluster.block_bytes
    free_bytes, queue_s = cluster.free_bytes(), cluster.queue_s()
    roomy = (one for one, free in enumerate(free_bytes) if free >= size_bytes)
    others = sorted((one for one in roomy if one not in held), key=queue_s.__getitem__)
    service_s = cluster.prefill_s(burst.own_tokens, burst.tokens)
    busy, left_s = work.busy_share(len(names)), work.left_s(cluster)

    def delay_s(count: int) -> float:
        busy_share = busy + burst.rate_rps * service_s / count
        wait_s = mean_wait_s(count, busy_share, max(left_s, service_s / 2), burst.span_s)
        return burst.chance * wait_s

    for target in others:
        count = len(held) + len(copies)
        source = held[count % len(held)]
        took_s = cluster.copy_s(source, target, size_bytes)
        late_s = max(0.0, took_s - burst.begins_s)
        served = burst.requests - burst.rate_rps * late_s
        waits_s = served * (delay_s(count) - delay_s(count + 1))
        saved_s = min(waits_s, burst.chance * took_s * (1.0 + burst.rate_rps * took_s / 2))
        if saved_s <= max(prices.link * took_s, LEAST_SAVED_S):
            break
        depth = len(burst.chain)
        copies.append(_copy(burst, depth, source, target, saved_s, took_s, cluster, now_s))
    return copies


def compute(burst: Burst, cluster: ClusterView) -> list[Compute]:
    """Return that a prefix nobody holds is to be computed on a replica that is idle, if one is."""
    if burst.chance < LEAST_CHANCE:
        return []
    loads, free_bytes = cluster.loads(), cluster.free_bytes()
    idle = [replica for replica, load in enumerate(loads) if load == 0]
    if not idle:
        return []
    replica = max(idle, key=free_bytes.__getitem__)
    reason = f"a burst is due with probability {burst.chance:.2f}, and nobody has its KV"
    return [Compute(burst.chain, cluster.replicas[replica], reason)]


def _copy(
    burst: Burst,
    depth: int,
    source: int,
    target: int,
    saved_s: float,
    took_s: float,
    cluster: ClusterView,
    now_s: float,
) -> Copy:
    return Copy(
        prefix=Prefix(burst.chain[depth - 1], depth, depth * burst.block_tokens),
        chain=burst.chain[:depth],
        source=cluster.replicas[source],
        target=cluster.replicas[target],
        size_bytes=depth * cluster.block_bytes,
        deadline_s=now_s + burst.begins_s + burst.span_s,
        value_s=saved_s,
        cost_s=took_s,
        reason=f"{burst.requests:.0f} requests expected with probability {burst.chance:.2f}; "
        f"saves {saved_s:.1f} s of delay",
    )
