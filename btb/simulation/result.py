"""What a simulated run gives back: one row a request, and one a transfer."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Transfer:
    """One prefix moved between replicas, or loaded from a replica's RAM or disk.

    `source_tier` is `hbm`, `ram` or `disk`; `source` equals `target` for a load from the
    replica's own tiers. `used` says whether a request found its blocks before they were evicted;
    a transfer that a policy ordered and nobody used is waste. `asked` is False for the loads an
    engine makes by itself for a request that it is about to run.
    """

    started_s: float
    ended_s: float
    source: int
    target: int
    source_tier: str
    prefix_key: int
    blocks: int
    size_bytes: float
    asked: bool
    used: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """One policy on one window of arrivals: arrays in the order of arrival.

    `hit_tokens` are prompt tokens that were not computed, by where they came from: `hbm` (computed
    here before), `copied` (moved here from a peer), `ram`, `disk`. `decisions` counts the reasons
    that the policy gave. `speculated_s` is compute spent on prefixes before they were asked for,
    `unused_speculated_tokens` the part of its `speculated_tokens` that no request found.
    """

    arrived_s: Floats
    ttft_s: Floats
    finished_s: Floats
    replica: Ints
    input_tokens: Ints
    hit_tokens: dict[str, Ints]
    transfers: tuple[Transfer, ...] = ()
    decisions: dict[str, int] = field(default_factory=dict)
    speculated_s: float = 0.0
    speculated_tokens: int = 0
    unused_speculated_tokens: int = 0

    @property
    def moved_bytes(self) -> float:
        """Bytes that the policy had moved, between replicas or up from RAM or disk."""
        return sum(t.size_bytes for t in self.transfers if t.asked)

    @property
    def wasted_bytes(self) -> float:
        """Bytes that the policy had moved and that no request used."""
        return sum(t.size_bytes for t in self.transfers if t.asked and not t.used)

    @property
    def hit_rate(self) -> float:
        """Share of all prompt tokens that were not computed."""
        total = int(self.input_tokens.sum())
        hits = sum(int(tokens.sum()) for tokens in self.hit_tokens.values())
        return hits / total if total else 0.0
