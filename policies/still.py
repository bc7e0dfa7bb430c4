"""A cluster that stands still: every figure is written down. For tests, and for authors."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from policies.base import Chain


@dataclass(slots=True)
class StillCluster:
    """A `ClusterView` in which a token takes 1 ms to compute, and 1 MB 1 s to copy.

    Parameters
    ----------
    load
        Requests on each replica; its length is their number.
    queue
        Seconds of prefill ahead on each, none if empty.
    resident
        Leading blocks of any chain that each holds, none if empty.
    stored
        Leading blocks that each holds in HBM or RAM; the same as `resident` if empty.
    coming
        Leading blocks of any chain that each will hold, and in how many seconds; none if empty.
    overtaken
        Requests that a newcomer overtakes on each. With None, replicas serve in order of arrival.
    """

    load: list[int]
    queue: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    coming: list[tuple[int, float]] = field(default_factory=list)
    overtaken: list[int] | None = None
    block_bytes: int = 1000

    @property
    def replicas(self) -> Sequence[str]:
        """`r0`, `r1` and so on."""
        return [f"r{index}" for index in range(len(self.load))]

    @property
    def by_priority(self) -> bool:
        """Whether `overtaken` is given."""
        return self.overtaken is not None

    def loads(self) -> list[int]:
        """Return `load`."""
        return self.load

    def queue_s(self, priorities: Sequence[float] | None = None) -> list[float]:
        """Return `queue`, whatever the priorities."""
        return self.queue or [0.0] * len(self.load)

    def behind(self, priorities: Sequence[float]) -> list[int]:
        """Return `overtaken`."""
        return self.overtaken or [0] * len(self.load)

    def resident_blocks(self, chain: Chain) -> list[int]:
        """Return `resident`, cut to the chain's length."""
        return [min(blocks, len(chain)) for blocks in self.resident or [0] * len(self.load)]

    def stored_blocks(self, chain: Chain) -> list[int]:
        """Return `stored`, cut to the chain's length."""
        return [min(blocks, len(chain)) for blocks in self.stored or self.resident_blocks(chain)]

    def pending(self, chain: Chain) -> list[tuple[int, float]]:
        """Return `coming`, cut to the chain's length."""
        return [
            (min(blocks, len(chain)), wait_s)
            for blocks, wait_s in self.coming or [(0, 0.0)] * len(self.load)
        ]

    def prefill_s(self, tokens: int, context_tokens: int) -> float:
        """Return 1 ms a token."""
        return tokens / 1000

    def copy_s(self, source: int, target: int, size_bytes: float) -> float:
        """Return 1 s a MB."""
        return size_bytes / 1e6

    def load_s(self, replica: int, chain: Chain) -> float:
        """Return 0.5 s a MB."""
        below = self.stored_blocks(chain)[replica] - self.resident_blocks(chain)[replica]
        return below * self.block_bytes / 2e6

    def free_bytes(self) -> list[float]:
        """Return plenty."""
        return [1e9] * len(self.load)
