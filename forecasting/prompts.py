"""Prompts of the last minute, and how many requests have gone on from each."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from forecasting.arrival import Arrival
from forecasting.node import PrefixNode
from forecasting.offspring import WATCH_S, Offspring, Outcome, Sofar, pooled, to_come, two_kinds
from forecasting.population import Population
from forecasting.recent import RecentMap
from forecasting.returning import Return

MAX_OPEN = 10_000
"""Prompts watched at a time; a newer one is not watched while there are so many."""

MAX_ROOTS = 10_000
"""Prefixes at the boundary of whose prompts something is known; the least recent is forgotten."""


@dataclass(slots=True)
class Prompt:
    """All whole blocks of one prompt, and who has asked for all of them since.

    Parameters
    ----------
    key, blocks, tokens
        Hash of the last whole block, and the depth from the root.
    at_s
        When it came.
    root
        Hash of the boundary's last block; what followed other prompts below that tells of it.
    tenant
        Whose it is.
    continues
        Whether it goes on from an earlier prompt, as a turn of a conversation does, past the root.
    count, first_s, last_s
        Requests that began with all of it since, and when the first and the last of them came.
    """

    key: int
    blocks: int
    tokens: int
    at_s: float
    root: int
    tenant: Population
    continues: bool
    count: int = 0
    first_s: float = inf
    last_s: float = inf

    def outcome(self) -> Outcome:
        """Return what has become of it."""
        span_s = self.last_s - self.first_s if self.count else 0.0
        return Outcome(self.first_s - self.at_s, self.count, span_s)


class Prompts:
    """Watches each prompt for `WATCH_S`, then notes what followed: by prefix, by tenant, by all.

    So when a prompt comes it is known how many of those like it were gone on from, how soon and
    by how many: an agent that is about to fan out is told from one that works alone by what others
    below the same prefix did. First prompts and those that continue one are told apart.

    Parameters
    ----------
    everyone
        All requests, of whatever tenant.

    Attributes
    ----------
    unwatched
        Prompts not watched, for there were too many.
    """

    def __init__(self, everyone: Population) -> None:
        self.unwatched = 0
        self._everyone = everyone
        self._open: dict[int, Prompt] = {}
        self._by_age: deque[Prompt] = deque()
        self._roots: RecentMap[int, tuple[Offspring, Offspring]] = RecentMap(MAX_ROOTS)

    def __len__(self) -> int:
        """Return the number of prompts watched."""
        return len(self._open)

    def settle(self, now_s: float) -> None:
        """Note what became of the prompts whose time is over at `now_s`."""
        while self._by_age and self._by_age[0].at_s + WATCH_S < now_s:
            prompt = self._by_age.popleft()
            del self._open[prompt.key]
            outcome = prompt.outcome()
            for kinds in (
                self._roots.use(prompt.root, two_kinds),
                prompt.tenant.offspring,
                self._everyone.offspring,
            ):
                kinds[prompt.continues].add(outcome)

    def take(
        self, arrival: Arrival, root: PrefixNode, known: int, tenant: Population, now_s: float
    ) -> Prompt | None:
        """Count an arrival for the prompts that it goes on from, and watch its own.

        `known` is how many leading blocks of its chain had been asked for before. Returns its
        prompt, or None where that is too short, or there are too many.
        """
        chain, open_prompts = arrival.chain, self._open
        for key in open_prompts.keys() & chain[root.end : known]:
            prompt = open_prompts[key]
            if not prompt.count:
                prompt.first_s = now_s
            prompt.count += 1
            prompt.last_s = now_s
        blocks = min(arrival.input_tokens // arrival.block_tokens, len(chain))
        if blocks <= root.end:
            return None
        key = chain[blocks - 1]
        if key in open_prompts:
            return open_prompts[key]
        if len(open_prompts) >= MAX_OPEN:
            self.unwatched += 1
            return None
        tokens = blocks * arrival.block_tokens
        prompt = Prompt(key, blocks, tokens, now_s, root.key, tenant, continues=known > root.end)
        open_prompts[key] = prompt
        self._by_age.append(prompt)
        return prompt

    def find(self, key: int) -> Prompt | None:
        """Return the watched prompt whose last whole block is `key`, or None."""
        return self._open.get(key)

    def likely(self, prompt: Prompt) -> float:
        """Return how many requests went on from the latest prompts of the kind that had most."""
        kinds = (prompt.tenant.offspring, self._everyone.offspring)
        own = self._roots.peek(prompt.root)
        return max(one[prompt.continues].mean for one in ((own, *kinds) if own else kinds))

    def to_come(self, prompt: Prompt, now_s: float, horizons_s: Sequence[float]) -> list[Return]:
        """Return what is still to come of a prompt by horizon, empty where nothing tells of it."""
        wide = (prompt.tenant.offspring, self._everyone.offspring)
        kinds = (self._roots.peek(prompt.root) or two_kinds(), *wide)
        alike = pooled([one[prompt.continues] for one in kinds])
        sofar = Sofar(now_s - prompt.at_s, prompt.count, prompt.first_s - prompt.at_s)
        return to_come(alike, sofar, horizons_s)
