"""One prefix to many targets: each hands it on to the next while it still arrives."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from replication.plan import Move


def spread(plan: Sequence[Move], chunk_bytes: int) -> tuple[Move, ...]:
    """Return the same moves; those of one prefix from one holder follow each other.

    The first of them, the worthiest in a plan, reads from the holder, each other one from a target
    before it. Every target still asks the holder what the blocks have to be like, and falls back on
    it where a target before it fails. Moves of their own stay as they are.

    Parameters
    ----------
    plan
        What is to be moved, in order.
    chunk_bytes
        Bytes of one read, as the executors have it.
    """
    groups: defaultdict[tuple[str, int, str], list[int]] = defaultdict(list)
    for number, move in enumerate(plan):
        if move.holders:
            groups[move.tenant, move.chain[-1], move.holders[0]].append(number)
    moves = list(plan)
    for numbers in groups.values():
        if len(numbers) < 2:
            continue
        chunks = -(-moves[numbers[0]].size_bytes // chunk_bytes)
        children = fewest_steps(len(numbers), chunks)
        for place, number in enumerate(numbers):
            before = "" if place < children else moves[numbers[place // children - 1]].target
            moves[number] = replace(moves[number], via=before, striped=False)
    return tuple(moves)


def fewest_steps(targets: int, chunks: int) -> int:
    """Return how many each one hands on to, 1 or 2, so that the last target is served soonest.

    With c children a chunk takes c steps at each of d levels, and the next follows at once:

        steps = c * (chunks + d - 1)

    where d is `targets` for a chain and the levels of a binary tree otherwise. It is counted for
    links that all give the same.

    Examples
    --------
    A chain for anything large, a tree for one chunk to many:

    >>> fewest_steps(targets=4, chunks=128)
    1
    >>> fewest_steps(targets=14, chunks=1)
    2
    """
    levels = {1: targets, 2: (targets + 1).bit_length() - 1 + ((targets + 1).bit_count() > 1)}
    return min(levels, key=lambda children: children * (chunks + levels[children] - 1))
