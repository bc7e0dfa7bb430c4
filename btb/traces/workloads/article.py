"""The article's own windows, rebuilt request by request from their start times."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from btb.traces.workloads.base import Draft, Window
from btb.traces.workloads.chance import spread


@dataclass(frozen=True, slots=True)
class ArticleSet:
    """One set of the article's windows: the shape of its requests, and when they come.

    `starts_s` and `decoys_s` hold one sequence a window.
    """

    span_s: float
    size: int
    prefix_tokens: int
    suffix_tokens: int
    output_tokens: int
    starts_s: Sequence[Sequence[float]]
    decoys_s: Sequence[Sequence[float]]


def article(given: ArticleSet, number: int) -> Window:
    """Return window `number`: evenly spaced bursts, and decoys with a prefix of their own.

    Request i of a burst comes at start + span · i / (size - 1), computed from left to right. There
    is no chance in it. Requests at the same time stay in the order bursts first, then decoys.
    """
    draft = Draft(Random(0))
    for start_s in given.starts_s[number]:
        times_s = spread(start_s, given.span_s, given.size, None)
        prefix = draft.prompt(given.prefix_tokens)
        draft.mark_burst(times_s, prefix, "article")
        for at_s in times_s:
            draft.add(at_s, draft.extend(prefix, given.suffix_tokens), given.output_tokens)
    for at_s in given.decoys_s[number]:
        prefix = draft.prompt(given.prefix_tokens)
        draft.add(at_s, draft.extend(prefix, given.suffix_tokens), given.output_tokens)
    return draft.window()
