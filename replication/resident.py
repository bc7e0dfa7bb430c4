"""What is resident in a pool, and who is told when that changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Resident:
    """A valid block. `parent` is the one before it in its chain, None for the first.

    `copied` tells a block that was brought here from one that was computed here; `leased` whether
    anybody has leased it since, which is what it is there for.
    """

    tenant: str
    block: int
    parent: int | None
    copied: bool
    leased: bool


class Observer(Protocol):
    """Is told what comes to be resident in a pool, and what ceases to be, as it happens."""

    def stored(self, residents: Sequence[Resident]) -> None:
        """Take note of blocks that became visible together."""
        ...

    def removed(self, resident: Resident) -> None:
        """Take note of a block that is visible no more, as it was at its end."""
        ...
