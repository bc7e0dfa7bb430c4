"""What came of a move."""

from dataclasses import dataclass

from replication.errors import ReplicationError
from replication.plan import Move


@dataclass(frozen=True, slots=True)
class Result:
    """What a move came to. `error` is None where the whole prefix is on the target now.

    `moved_bytes` are in place and can be used, `wasted_bytes` were ordered from a holder and
    thrown away. `path` names the holders that brought it, or where nothing came the one that was
    asked last, the target and the transports; it is empty where nothing had to be moved. `retries`
    counts tries that were made because an earlier one had failed.
    """

    move: Move
    moved_bytes: int
    wasted_bytes: int
    took_s: float
    path: str
    retries: int
    error: ReplicationError | None

    @property
    def ok(self) -> bool:
        """Whether the target has the prefix."""
        return self.error is None
