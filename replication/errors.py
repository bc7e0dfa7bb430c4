"""What can go wrong while KV is copied.

ReplicationError
    Cancelled           it was called off before it was whole
    Busy                somebody else brings the same block to the same target already
    NoRoom              the target can't place the blocks without evicting what is worth more
    LeaseLost           the lease ended, or its holder started anew, before the blocks were read
    Recycled            a block at the source was given to somebody else while it was read
    Corrupted           what was read is not what was held
    Refused             the peer doesn't take this: wrong tenant, token, version or frame
    TransportError      bytes could not be moved; `errno` is the kernel's reason where there is one
        TransferTimeout     the deadline passed
        PeerGone            the peer closed, died or can't be reached

Anything else that comes out of this package is a bug.
"""


class ReplicationError(Exception):
    """A copy failed; its prefix is simply not on the target, and nothing of it can be seen."""


class Cancelled(ReplicationError):
    """Whoever ordered the copy called it off."""


class Busy(ReplicationError):
    """Another copy of a block is on its way to this target; once it has landed this one is moot."""


class NoRoom(ReplicationError):
    """The target has no slots for it."""


class LeaseLost(ReplicationError):
    """The source no longer keeps the blocks for this copy."""


class Recycled(ReplicationError):
    """A block's generation changed while it was read."""


class Corrupted(ReplicationError):
    """A checksum is not what it should be."""


class Refused(ReplicationError):
    """The peer refuses; asking again won't help."""


class TransportError(ReplicationError):
    """Bytes could not be moved. `errno` is the kernel's reason, None where it has none."""

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


class TransferTimeout(TransportError):
    """The deadline passed."""


class PeerGone(TransportError):
    """The peer closed, died, or can't be reached."""
