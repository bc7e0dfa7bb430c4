"""Putting replicas in order, ties broken by chance from a generator that was handed in."""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Key = TypeVar("Key", float, tuple[float, ...])


def first_by(keys: Sequence[Key], rng: Random) -> int:
    """Return the position of the smallest key, one of them at random where several are equal."""
    best = min(keys)
    return rng.choice([index for index, key in enumerate(keys) if key == best])


def ranked(names: Sequence[str], keys: Sequence[Key], first: int) -> tuple[str, ...]:
    """Return `names` by rising key, but with number `first` in front.

    >>> ranked(["a", "b", "c"], [2.0, 1.0, 1.0], first=2)
    ('c', 'b', 'a')
    """
    order: list[int] = sorted(range(len(names)), key=keys.__getitem__)
    order.remove(first)
    return (names[first], *[names[index] for index in order])
