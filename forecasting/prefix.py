"""The prefix tree: which requests share which beginning, in bounded memory."""

from collections import OrderedDict
from collections.abc import Iterator

from forecasting.arrival import Arrival
from forecasting.chain import known_blocks
from forecasting.node import PrefixNode


class PrefixTree:
    """A radix tree over chains of cumulative block hashes.

    An equal hash means an equal prefix, so one dictionary from hash to node answers "how much of
    this chain is known" by a binary search over depths: 12 look-ups for 4,096 blocks.

    A run is split where a chain leaves it or ends inside it: the new upper node gets a copy of the
    statistics, for all that went through the run went through its upper part; the lower one stays
    the object that it was. Every chain that reaches the boundary depth has a node that ends
    exactly there. Down to it a node's arrivals are exactly the chains that begin with it. Past it
    a run with nothing below grows with a chain that continues it, so a conversation is one node
    and not one a turn, and its arrivals are those of any part of it.

    Parameters
    ----------
    max_blocks
        Most blocks kept. The least recently used run with nothing below goes first. Of a chain
        longer than this only so much is taken.

    Attributes
    ----------
    pruned
        Nodes that had to go so far.
    broken
        Chains not taken because their hashes aren't cumulative: one came twice, or was known from
        another depth or from below another prefix.
    cut
        Chains longer than `max_blocks`.
    known
        Leading blocks of the latest chain observed that were known before.

    Raises
    ------
    ValueError
        If `max_blocks` is below 1.

    Examples
    --------
    >>> tree = PrefixTree(max_blocks=100)
    >>> for chain in [(1, 2, 3, 4), (1, 2, 5)]:
    ...     path = tree.observe(Arrival(0.0, chain, 512, 2048), at_s=0.0, boundary_blocks=1)
    >>> [(node.blocks, node.stats.arrivals) for node in path]
    [((1,), 2), ((2,), 2), ((5,), 1)]
    >>> tree.match((1, 2, 3, 9)), len(tree)
    (3, 5)
    """

    def __init__(self, max_blocks: int) -> None:
        if max_blocks < 1:
            raise ValueError(f"max_blocks must be at least 1, got {max_blocks!r}")
        self.pruned = self.broken = self.cut = self.known = 0
        self._max_blocks = max_blocks
        self._nodes: dict[int, PrefixNode] = {}
        # By last use. A node comes after all below it, so the first has nothing below.
        self._recent: OrderedDict[PrefixNode, None] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of blocks kept."""
        return len(self._nodes)

    def nodes(self) -> Iterator[PrefixNode]:
        """Yield every node, least recently used first; a node comes after those below it."""
        return iter(self._recent)

    def find(self, key: int) -> PrefixNode | None:
        """Return the node whose run holds the block `key`, or None."""
        return self._nodes.get(key)

    def match(self, chain: tuple[int, ...]) -> int:
        """Return how many leading blocks of `chain` are known."""
        return known_blocks(chain, self._nodes)

    def path(self, chain: tuple[int, ...]) -> list[PrefixNode]:
        """Return the nodes that lie wholly on `chain`, shallow to deep; none on a broken one."""
        depth = self.match(chain)
        node = self._nodes[chain[depth - 1]] if depth else None
        if not _lies_on(node, chain, depth):
            return []
        if node is not None and node.end > depth:
            node = node.parent
        return _line(node)

    def observe(self, arrival: Arrival, at_s: float, boundary_blocks: int) -> list[PrefixNode]:
        """Count an arrival at `at_s`; return the nodes on its chain, shallow to deep.

        Empty where the chain is, or is broken; a broken chain changes nothing but `broken`.
        """
        chain = arrival.chain
        if len(chain) > self._max_blocks:
            chain = chain[: self._max_blocks]
            self.cut += 1
        self.known = depth = self.match(chain)
        node = self._nodes[chain[depth - 1]] if depth else None
        fresh = chain[depth:]
        if not (_lies_on(node, chain, depth) and self._all_new(fresh)):
            self.broken += 1
            return []
        if node is not None and node.end > depth:
            node = self._split(node, depth)
        if fresh:
            self._make_room(len(fresh), node)
            node = self._append(node, fresh, arrival, boundary_blocks)
        path = self._use(node)
        for step in path:
            step.stats.add(at_s, arrival.input_tokens)
        return path

    def _all_new(self, fresh: tuple[int, ...]) -> bool:
        return len(set(fresh)) == len(fresh) and self._nodes.keys().isdisjoint(fresh)

    def _split(self, lower: PrefixNode, depth: int) -> PrefixNode:
        """Cut a run at `depth` and return the new node above; `lower` stays itself.

        So whoever holds on to a node that ends at the boundary still holds the one that does.
        """
        blocks = lower.blocks[: depth - lower.start]
        lower.blocks = lower.blocks[depth - lower.start :]
        upper = PrefixNode(blocks, lower.parent, lower.block_tokens, lower.tenant)
        upper.stats = lower.stats.copy()
        upper.children = 1
        lower.parent = upper
        lower.start = depth
        self._nodes.update(dict.fromkeys(blocks, upper))
        self._recent[upper] = None
        return upper

    def _append(
        self, node: PrefixNode | None, fresh: tuple[int, ...], arrival: Arrival, boundary: int
    ) -> PrefixNode:
        """Put new blocks below `node` and return the node they end in."""
        if node is not None and not node.children and node.start >= boundary:
            node.blocks += fresh
            node.end += len(fresh)
            self._nodes.update(dict.fromkeys(fresh, node))
            return node
        room = boundary - (node.end if node is not None else 0)
        if 0 < room < len(fresh):
            node = self._add_child(node, fresh[:room], arrival)
            fresh = fresh[room:]
        return self._add_child(node, fresh, arrival)

    def _add_child(
        self, parent: PrefixNode | None, blocks: tuple[int, ...], arrival: Arrival
    ) -> PrefixNode:
        child = PrefixNode(blocks, parent, arrival.block_tokens, arrival.tenant)
        if parent is not None:
            parent.children += 1
        self._nodes.update(dict.fromkeys(blocks, child))
        self._recent[child] = None
        return child

    def _use(self, node: PrefixNode | None) -> list[PrefixNode]:
        """Make the line down to `node` the most recently used, and return it."""
        path = _line(node)
        for step in reversed(path):
            self._recent.move_to_end(step)
        return path

    def _make_room(self, blocks: int, node: PrefixNode | None) -> None:
        """Prune until `blocks` more fit, but nothing on the line down to `node`."""
        if len(self._nodes) + blocks <= self._max_blocks:
            return
        self._use(node)
        while len(self._nodes) + blocks > self._max_blocks:
            leaf, _ = self._recent.popitem(last=False)
            assert not leaf.children
            for block in leaf.blocks:
                del self._nodes[block]
            if leaf.parent is not None:
                leaf.parent.children -= 1
            leaf.alive = False
            self.pruned += 1


def _lies_on(node: PrefixNode | None, chain: tuple[int, ...], depth: int) -> bool:
    """Tell whether `node` holds the chain's block at `depth`, and those above it end on the chain.

    Always so for cumulative hashes; for others this finds most mistakes without reading it all.
    """
    if node is None:
        return True
    index = depth - 1 - node.start
    if not 0 <= index < len(node.blocks) or node.blocks[index] != chain[depth - 1]:
        return False
    above = node.parent
    while above is not None:
        if chain[above.end - 1] != above.blocks[-1]:
            return False
        above = above.parent
    return True


def _line(node: PrefixNode | None) -> list[PrefixNode]:
    line = []
    while node is not None:
        line.append(node)
        node = node.parent
    line.reverse()
    return line
