"""Where a block lies in a replica's KV memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """How the memory of each rank is cut: layer after layer, in each one slot after the other.

    Parameters
    ----------
    slots
        Blocks that each rank has room for. A block has the same slot number on all ranks.
    layer_bytes
        By rank, then by layer, the bytes of one block: keys and values of all its tokens. Ranks
        may differ (pipeline stages), and so may layers (hybrid models).

    Raises
    ------
    ValueError
        If there is no slot, no rank, a rank without layers, or a layer without bytes.

    Examples
    --------
    Two slots, two layers of 10 and 20 bytes on a single rank:

    >>> layout = Layout(slots=2, layer_bytes=((10, 20),))
    >>> layout.region_bytes(rank=0)
    60
    >>> layout.stretches(rank=0, slot=1)
    ((10, 10), (40, 20))
    """

    slots: int
    layer_bytes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"slots must be at least 1, got {self.slots}")
        if not self.layer_bytes or not all(self.layer_bytes):
            raise ValueError(f"each rank needs layers, got layer_bytes {self.layer_bytes}")
        if min(map(min, self.layer_bytes)) < 1:
            raise ValueError(f"each layer needs bytes, got layer_bytes {self.layer_bytes}")

    @property
    def ranks(self) -> range:
        """Numbers of the ranks."""
        return range(len(self.layer_bytes))

    @property
    def block_bytes(self) -> int:
        """Bytes of one block over all ranks."""
        return sum(map(sum, self.layer_bytes))

    def rank_bytes(self, rank: int) -> int:
        """Return the bytes of one block on a rank."""
        return sum(self.layer_bytes[rank])

    def region_bytes(self, rank: int) -> int:
        """Return the bytes of a rank's whole memory."""
        return self.slots * self.rank_bytes(rank)

    def stretches(self, rank: int, slot: int) -> tuple[tuple[int, int], ...]:
        """Return where a block lies on a rank, as (offset, bytes) by layer."""
        found, base = [], 0
        for size_bytes in self.layer_bytes[rank]:
            found.append((base + slot * size_bytes, size_bytes))
            base += self.slots * size_bytes
        return tuple(found)

    def locate(self, rank: int, offset: int) -> tuple[int, int, int]:
        """Return whose byte is at an offset of a rank's memory: `stretches` the other way round.

        Returns
        -------
        tuple[int, int, int]
            The slot, the byte's place in its block, counted over all ranks and layers, and how
            many bytes of that layer are left from it on.

        Raises
        ------
        ValueError
            If it lies outside.
        """
        before = sum(map(self.rank_bytes, range(rank)))
        base = 0
        for size_bytes in self.layer_bytes[rank]:
            if base <= offset < base + self.slots * size_bytes:
                slot, within = divmod(offset - base, size_bytes)
                return slot, before + within, size_bytes - within
            base += self.slots * size_bytes
            before += size_bytes
        raise ValueError(f"offset {offset} is outside of rank {rank}")
