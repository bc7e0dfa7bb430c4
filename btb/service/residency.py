"""Which blocks a replica is thought to hold: predicted from what was routed and copied there."""

from collections import OrderedDict

from forecasting.chain import known_blocks

Chain = tuple[int, ...]


class Residency:
    """The blocks of one replica and when each is ready, least recently used first to go.

    A prefix goes from its tail: each use makes the first block the most recent one, so a block is
    never kept when one before it is gone. That makes "how much of this chain is here" a binary
    search. A chain larger than the whole capacity is kept up to it.

    Parameters
    ----------
    capacity_bytes
        HBM for KV.

    Examples
    --------
    >>> held = Residency(capacity_bytes=100.0)
    >>> held.add((1, 2, 3), block_bytes=10, ready_s=5.0)
    >>> held.resident((1, 2, 9), now_s=4.0), held.resident((1, 2, 9), now_s=5.0)
    (0, 2)
    >>> held.coming((1, 2, 9))
    (2, 5.0)
    """

    def __init__(self, capacity_bytes: float) -> None:
        self.capacity_bytes = capacity_bytes
        self.held_bytes = 0
        # Ready time and size by block. Blocks that came together share one entry.
        self._blocks: OrderedDict[int, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, chain: Chain, *, block_bytes: int, ready_s: float) -> None:
        """Use `chain`: what is missing of it is ready at `ready_s`, what is here at once or sooner.

        Blocks that were to be ready later than `ready_s` now are so then.
        """
        chain = chain[: int(self.capacity_bytes // block_bytes)]
        blocks, fresh = self._blocks, (ready_s, block_bytes)
        for block in reversed(chain):
            known = blocks.get(block)
            if known is None:
                self.held_bytes += block_bytes
                blocks[block] = fresh
            else:
                if known[0] > ready_s:
                    blocks[block] = (ready_s, known[1])
                blocks.move_to_end(block)
        self._evict()

    def resize(self, capacity_bytes: float) -> None:
        """Take another capacity; what no longer fits goes."""
        self.capacity_bytes = capacity_bytes
        self._evict()

    def resident(self, chain: Chain, now_s: float) -> int:
        """Return how many leading blocks of `chain` are here and ready."""
        blocks = self._blocks
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high) // 2
            known = blocks.get(chain[middle])
            if known is not None and known[0] <= now_s:
                low = middle + 1
            else:
                high = middle
        return low

    def coming(self, chain: Chain) -> tuple[int, float]:
        """Return how many leading blocks of `chain` are or will be here, and when the last is."""
        depth = known_blocks(chain, self._blocks)
        return depth, self._blocks[chain[depth - 1]][0] if depth else 0.0

    def _evict(self) -> None:
        while self.held_bytes > self.capacity_bytes:
            _, (_, block_bytes) = self._blocks.popitem(last=False)
            self.held_bytes -= block_bytes
