"""What every workload family is made of: contexts built from blocks, and a window in the making."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from random import Random

from forecasting.arrival import Arrival

BLOCK_TOKENS = 256
"""Tokens in a block of every generated trace; the article's."""


@dataclass(frozen=True, slots=True)
class Context:
    """A prompt: its length and its cumulative block ids, the last one partial where need be."""

    tokens: int = 0
    chain: tuple[int, ...] = ()

    @property
    def shared_blocks(self) -> int:
        """Blocks that a continuation of this prompt keeps: the whole ones."""
        return self.tokens // BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Burst:
    """Ground truth: many arrivals of one prefix that begin at once.

    Parameters
    ----------
    start_s, end_s
        First and last arrival.
    size
        Arrivals, the first one included.
    prefix_tokens
        Tokens that they share, in whole blocks.
    prefix_key
        Id of the last shared block: the entry of `hash_ids` that names the whole prefix.
    kind
        Family that made it; where it recurs, also the name of the job.
    """

    start_s: float
    end_s: float
    size: int
    prefix_tokens: int
    prefix_key: int
    kind: str


@dataclass(frozen=True, slots=True)
class Window:
    """One finished trace: arrivals and bursts in order of time."""

    arrivals: tuple[Arrival, ...]
    bursts: tuple[Burst, ...]


class Draft:
    """A window in the making: its chance, its block ids, and what was added so far.

    Block ids are 0, 1, 2, ... in order of first use, so that an equal id means an equal prefix and
    files stay small. What would come at `end_s` or later is left out.

    Examples
    --------
    A prompt of 300 tokens fills one block of 256 and opens a second. What comes after it keeps the
    full block only, for the second one has other content by then:

    >>> draft = Draft(Random(1))
    >>> prompt = draft.prompt(300)
    >>> prompt.chain, draft.extend(prompt, 300).chain
    ((0, 1), (0, 2, 3))
    """

    def __init__(self, rng: Random, end_s: float = inf) -> None:
        self.rng = rng
        self.end_s = end_s
        self._next_id = 0
        self._arrivals: list[Arrival] = []
        self._bursts: list[Burst] = []

    def prompt(self, tokens: int) -> Context:
        """Return a prompt of `tokens` tokens that shares nothing with any other."""
        return self.extend(Context(), tokens)

    def extend(self, context: Context, tokens: int) -> Context:
        """Return `context` followed by `tokens` tokens that nobody has seen before."""
        kept = context.chain[: context.shared_blocks]
        total = context.tokens + tokens
        first = self._next_id
        self._next_id += -(-total // BLOCK_TOKENS) - len(kept)
        return Context(total, (*kept, *range(first, self._next_id)))

    def add(self, at_s: float, prompt: Context, output_tokens: int, session: str = "") -> None:
        """Add one request."""
        if at_s >= self.end_s:
            return
        arrival = Arrival(
            at_s=at_s,
            chain=prompt.chain,
            block_tokens=BLOCK_TOKENS,
            input_tokens=prompt.tokens,
            output_tokens=output_tokens,
            session=session,
        )
        self._arrivals.append(arrival)

    def mark_burst(self, times_s: Sequence[float], prefix: Context, kind: str) -> None:
        """Note as ground truth that requests at `times_s`, in order, share `prefix`."""
        within_s = [at_s for at_s in times_s if at_s < self.end_s]
        if not within_s:
            return
        blocks = prefix.shared_blocks
        burst = Burst(
            start_s=within_s[0],
            end_s=within_s[-1],
            size=len(within_s),
            prefix_tokens=blocks * BLOCK_TOKENS,
            prefix_key=prefix.chain[blocks - 1],
            kind=kind,
        )
        self._bursts.append(burst)

    def window(self) -> Window:
        """Return what was added, in order of time; ties stay in the order they were added."""
        return Window(
            tuple(sorted(self._arrivals, key=attrgetter("at_s"))),
            tuple(sorted(self._bursts, key=attrgetter("start_s"))),
        )
