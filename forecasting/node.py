"""A node of the prefix tree."""

from forecasting.stats import PrefixStats


class PrefixNode:
    """A run of blocks that requests went through together, and the arrivals that did.

    Attributes
    ----------
    blocks
        Hashes of the run, shallow to deep. The last one names the node.
    start, end
        Blocks from the root to the run's beginning and to its end.
    parent
        The node it continues, or None below the root. It can change: see `PrefixTree`.
    children
        How many nodes continue this one.
    block_tokens, tenant
        Of the arrival that made the node. Tenants and block sizes never share a hash.
    alive
        False once the node has been pruned.
    stats
        The arrivals that went through the whole run.
    """

    __slots__ = (
        "alive",
        "block_tokens",
        "blocks",
        "children",
        "end",
        "parent",
        "start",
        "stats",
        "tenant",
    )

    def __init__(
        self, blocks: tuple[int, ...], parent: "PrefixNode | None", block_tokens: int, tenant: str
    ) -> None:
        self.blocks = blocks
        self.start: int = parent.end if parent is not None else 0
        self.end: int = self.start + len(blocks)
        self.parent = parent
        self.children = 0
        self.block_tokens = block_tokens
        self.tenant = tenant
        self.alive = True
        self.stats = PrefixStats()

    @property
    def key(self) -> int:
        """Hash of the last block, and so of the whole prefix."""
        return self.blocks[-1]

    @property
    def tokens(self) -> int:
        """Tokens from the root to the node's end."""
        return self.end * self.block_tokens
