"""Follows every prefix at the boundary depth: counts its arrivals and says what is known of it."""

from collections import deque
from dataclasses import dataclass
from heapq import nlargest
from math import isfinite

from forecasting.arrival import Arrival
from forecasting.due import DueQueue
from forecasting.features import features
from forecasting.node import PrefixNode
from forecasting.population import Population
from forecasting.prefix import PrefixTree
from forecasting.prompts import Prompt, Prompts
from forecasting.recent import RecentMap
from forecasting.stats import BURST_SILENCE_S, LEAST_SIZE
from models.base import Features
from models.recurrence import schedule

MAX_TENANTS = 10_000
"""Tenants of whom something is known; the least recently active is forgotten past this."""

MAX_ACTIVE = 4_096
"""Prefixes among which `hottest` looks: those that were asked for last."""

MAX_FIRSTS = 10_000
"""New prefixes watched for a minute; a newer one is not watched while there are so many."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was known of a prefix right after one of its arrivals was counted.

    `x` are the features of `node` at `at_s`, and `count_before` its arrivals by then, with the
    one that made the sample: what follows is what a learner has to predict.
    """

    node: PrefixNode
    at_s: float
    x: Features
    count_before: int


class PrefixTracker:
    """Counts arrivals by prefix, and describes a prefix at any time.

    A sample is made for each arrival, of the node that ends at the first `boundary_tokens` tokens
    of its prompt: short enough that a burst shares it, long enough to be worth a copy.

    Parameters
    ----------
    boundary_tokens
        Depth of the prefixes that samples are about, in tokens, rounded down to whole blocks.
    max_blocks
        Most blocks that the tree keeps.

    Attributes
    ----------
    now_s
        The newest time seen. It never goes back: an arrival from before counts as arriving now.
    arrivals, late, short
        Arrivals so far; those that came with a time before `now_s`; those without a sample, for
        their chain doesn't reach the boundary, is empty or is broken.
    tree
        The prefixes.
    due
        Those of them whose next burst is due at a known time.
    prompts
        Those of the last minute, and what has come of them.
    prompt
        That of the latest arrival, None where it isn't watched.

    Raises
    ------
    ValueError
        If `boundary_tokens` or `max_blocks` is below 1.
    """

    def __init__(self, boundary_tokens: int = 2048, max_blocks: int = 2_000_000) -> None:
        if boundary_tokens < 1:
            raise ValueError(f"boundary_tokens must be at least 1, got {boundary_tokens!r}")
        self.now_s = 0.0
        self.arrivals = self.late = self.short = 0
        self.tree = PrefixTree(max_blocks)
        self.due = DueQueue()
        self.prompt: Prompt | None = None
        self._boundary_tokens = boundary_tokens
        self._everyone = Population()
        self.prompts = Prompts(self._everyone)
        self._tenants: RecentMap[str, Population] = RecentMap(MAX_TENANTS)
        self._active: RecentMap[PrefixNode, None] = RecentMap(MAX_ACTIVE)
        self._firsts: deque[tuple[float, PrefixNode, Population]] = deque()

    def tick(self, now_s: float) -> float:
        """Move the clock on to `now_s` if that is later, and return what it says then.

        Raises
        ------
        ValueError
            If `now_s` is infinite or not a number.
        """
        if not isfinite(now_s):
            raise ValueError(f"a time must be finite, got {now_s!r}")
        self.now_s = max(now_s, self.now_s)
        self.due.advance(self.now_s)
        return self.now_s

    def boundary_blocks(self, block_tokens: int) -> int:
        """Return the boundary's depth in blocks of `block_tokens`, at least one."""
        return max(1, self._boundary_tokens // block_tokens)

    def observe(self, arrival: Arrival) -> Sample | None:
        """Count `arrival` and return a sample of its boundary prefix, or None where it has none."""
        now_s = self.tick(arrival.at_s)
        self.late += arrival.at_s < now_s
        self.arrivals += 1
        self._settle(now_s)
        self.prompts.settle(now_s)
        self._everyone.add(now_s)
        tenant = self._tenants.use(arrival.tenant, Population)
        tenant.add(now_s)
        boundary = self.boundary_blocks(arrival.block_tokens)
        path = self.tree.observe(arrival, now_s, boundary)
        node = next((step for step in path if step.end == boundary), None)
        if node is None:
            self.short += 1
            self.prompt = None
            return None
        self.prompt = self.prompts.take(arrival, node, self.tree.known, tenant, now_s)
        self._active.use(node, _nothing)
        stats = node.stats
        if stats.burst_size == LEAST_SIZE and stats.past:
            self._returned(node, tenant)
        seen = stats.arrivals
        if seen == 1 and len(self._firsts) < MAX_FIRSTS:
            self._firsts.append((now_s, node, tenant))
        return Sample(node, now_s, features(node, tenant, self._everyone, now_s), seen)

    def features(self, node: PrefixNode, at_s: float) -> Features:
        """Return what is known of `node` at `at_s`, not before the newest time seen."""
        tenant = self._tenants.peek(node.tenant) or self._everyone
        return features(node, tenant, self._everyone, at_s)

    def path(self, arrival: Arrival) -> list[PrefixNode]:
        """Return the known nodes on the arrival's chain, shallow to deep."""
        return self.tree.path(arrival.chain)

    def find(self, key: int) -> PrefixNode | None:
        """Return the node that holds the block `key`, or None."""
        return self.tree.find(key)

    def hottest(self, now_s: float, top: int) -> list[PrefixNode]:
        """Return the `top` boundary prefixes with most arrivals, halved every 60 s, hottest first.

        Looks at the `MAX_ACTIVE` that were asked for last, whatever the size of the tree.
        """
        rates = [
            (node.stats.counts(now_s)[3], -order, node)
            for order, (node, _) in enumerate(self._active.items())
            if node.alive
        ]
        return [node for _, _, node in nlargest(top, rates)]

    def _returned(self, node: PrefixNode, tenant: Population) -> None:
        """Note that a burst of `node` has begun, and when the next one is due."""
        stats, family = node.stats, tenant.family
        if stats.schedule is not None:
            family.learn(stats.schedule, stats.burst_start_s)
        stats.schedule = schedule(stats.past, stats.burst_start_s, family)
        if stats.schedule is not None:
            self.due.add(node, stats.schedule)

    def _settle(self, now_s: float) -> None:
        """Note which prefixes, new a minute ago, were asked for again; before counting more."""
        firsts = self._firsts
        while firsts and firsts[0][0] + BURST_SILENCE_S < now_s:
            _, node, tenant = firsts.popleft()
            repeated = node.stats.arrivals > 1
            self._everyone.learn_first(repeated)
            tenant.learn_first(repeated)


def _nothing() -> None:
    return None
