"""A sum of regression trees as plain numbers, and a fast walk through all of them at once."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np

LEAF = -1
"""Stands for a leaf where otherwise the number of an input would be."""

MAX_LEAVES = 32
"""Most leaves of a tree: one bit each."""

MAX_TREES = 512
"""Most trees of a forest: at most 35 MB of bits, a quarter of that with 16 leaves a tree."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes of a binary tree in preorder: a node, all that is left of it, all that is right.

    Written like this a tree needs no links, so none can lead astray or in a circle.

    Parameters
    ----------
    inputs
        Number of the input that a node looks at, `LEAF` for a leaf.
    numbers
        A node's threshold (x at most this goes left) or a leaf's value.

    Raises
    ------
    ValueError
        If this is no whole tree, or it has more than `MAX_LEAVES` leaves.
    """

    inputs: tuple[int, ...]
    numbers: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.numbers):
            raise ValueError(f"{len(self.inputs)} inputs but {len(self.numbers)} numbers")
        due = 1  # nodes that have a parent and are still to come
        for k, one in enumerate(self.inputs):
            if one < LEAF:
                raise ValueError(f"input should be {LEAF} or more, got {one}")
            if due == 0:
                raise ValueError(f"the tree ends at node {k}, but {len(self.inputs)} are given")
            due += -1 if one == LEAF else 1
        if due:
            raise ValueError(f"{due} nodes are missing at the end of the tree")
        if self.inputs.count(LEAF) > MAX_LEAVES:
            raise ValueError(f"a tree should have at most {MAX_LEAVES} leaves")


class Forest:
    """The sum of what each of many trees says of some inputs.

    Instead of walking down each tree, it looks up for each input which leaves its value rules out,
    in all trees at once (QuickScorer). Leaves are bits, from left to right. A node whose input is
    above its threshold rules out all leaves on its left; of those that no node rules out, the
    leftmost is where the walk would have ended. For each input the leaves that its thresholds rule
    out are put together beforehand, for all trees in one long integer: a forecast takes a binary
    search and an "or" for each input.

    Parameters
    ----------
    trees
        At least one and at most `MAX_TREES`; the sum is taken in their order.

    Raises
    ------
    ValueError
        If there are none or too many.

    Examples
    --------
    >>> low_or_high = Tree(inputs=(0, LEAF, LEAF), numbers=(5.0, 1.0, 10.0))
    >>> forest = Forest([low_or_high, Tree((LEAF,), (0.5,))])
    >>> forest.sum([5.0]), forest.sum([5.1])
    (1.5, 10.5)

    References
    ----------
    Lucchese, C., Nardini, F. M., Orlando, S., Perego, R., Tonellotto, N. and Venturini, R. (2015).
    QuickScorer: a fast algorithm to rank documents with additive ensembles of regression trees.
    SIGIR 2015.
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        if not 1 <= len(trees) <= MAX_TREES:
            raise ValueError(f"a forest should have 1 to {MAX_TREES} trees, got {len(trees)}")
        self.trees = tuple(trees)
        leaves = [
            [n for i, n in zip(tree.inputs, tree.numbers, strict=True) if i == LEAF]
            for tree in trees
        ]
        self._bits = np.dtype("<u2" if max(map(len, leaves)) <= 16 else "<u4")
        self._searches: list[tuple[int, list[float], list[int]]] = []
        splits = sorted(split for k, tree in enumerate(trees) for split in _splits(k, tree))
        for one, group in groupby(splits, key=itemgetter(0)):
            thresholds: list[float] = []
            ruled_out = [0]
            for _, threshold, tree_number, on_left in group:
                thresholds.append(threshold)
                shift = tree_number * 8 * self._bits.itemsize
                ruled_out.append(ruled_out[-1] | on_left << shift)
            self._searches.append((one, thresholds, ruled_out))
        self._one = self._bits.type(1)
        self._values = np.array([value for tree in leaves for value in tree])
        self._before_first = np.cumsum([0, *map(len, leaves[:-1])]) - 1

    def sum(self, x: Sequence[float]) -> float:
        """Return the sum over all trees for inputs `x`, finite numbers."""
        together = 0
        for one, thresholds, ruled_out in self._searches:
            together |= ruled_out[bisect_left(thresholds, x[one])]
        size = len(self.trees) * self._bits.itemsize
        out = np.frombuffer(together.to_bytes(size, "little"), self._bits)
        leaf = np.bitwise_count(out ^ (out + self._one))  # up to and with the lowest that is not
        # In order, as scikit-learn adds them up: np.sum would go by pairs and round differently.
        return float(np.add.accumulate(self._values.take(self._before_first + leaf))[-1])


def _splits(tree_number: int, tree: Tree) -> list[tuple[int, float, int, int]]:
    """Return (input, threshold, tree, leaves ruled out if above, as bits) of each inner node."""
    found: list[tuple[int, float, int, int]] = []
    open_nodes: list[tuple[int, float, int]] = []  # on their left side: input, threshold, leaf
    sides: list[bool] = []  # of each node above, whether we are on its right side
    leaf = 0
    for one, number in zip(tree.inputs, tree.numbers, strict=True):
        if one != LEAF:
            open_nodes.append((one, number, leaf))
            sides.append(False)
            continue
        leaf += 1
        while sides and sides[-1]:
            sides.pop()
        if sides:
            sides[-1] = True
            node, threshold, first = open_nodes.pop()
            on_left = (1 << leaf) - (1 << first)
            found.append((node, threshold, tree_number, on_left))
    return found
