"""What can be asked over a control channel, and how answers and errors are written.

A request is a frame of msgpack, a map that names its type. An answer is a frame too: a status byte,
then what was asked for, or a `Failure`.
"""

from typing import Annotated, Self, TypeVar

import msgspec
from msgspec import Meta, Struct

from replication import errors
from replication.errors import Refused, ReplicationError, TransportError
from replication.lease import Lease
from replication.plan import Move
from replication.result import Result
from replication.transports.tcp_frames import OK, REFUSED

REQUEST_BYTES = 1 << 20
ANSWER_BYTES = 16 << 20
MOST_BLOCKS = 65_536
MOST_MOVES = 1_024
MOST_HOLDERS = 64
LONGEST_COPY_S = 3600.0
LONGEST_WAIT_S = 30.0

T = TypeVar("T")
Name = Annotated[str, Meta(max_length=256)]
Hash = int
"""A block's hash, of 64 bits."""
Chain = Annotated[tuple[Hash, ...], Meta(min_length=1, max_length=MOST_BLOCKS)]
Seconds = Annotated[float, Meta(gt=0.0, le=LONGEST_COPY_S)]


class _Request(Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """Something to be asked for."""


class AskLease(_Request, frozen=True, tag="lease"):
    """Pin all blocks of a chain; answered with an `Offer`."""

    tenant: Name
    chain: Chain
    length_s: Seconds


class AskFollow(_Request, frozen=True, tag="follow"):
    """Pin blocks that are there or on their way; answered with an `Offer` without digests."""

    tenant: Name
    chain: Chain
    length_s: Seconds


class AskLanded(_Request, frozen=True, tag="landed"):
    """Say how far it has come; answered with bytes by block, once there are more in all."""

    lease: Lease
    beyond_bytes: Annotated[int, Meta(ge=0)]


class AskVerify(_Request, frozen=True, tag="verify"):
    """Say whether what was read under a lease is what it promised; answered with None."""

    lease: Lease


class AskRelease(_Request, frozen=True, tag="release"):
    """End a lease; answered with None."""

    lease: Lease


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """A `Move` to whoever is asked. `holders`, `via` are addresses, `within_s` is from now on."""

    tenant: Name
    chain: Chain
    holders: Annotated[tuple[Name, ...], Meta(max_length=MOST_HOLDERS)]
    size_bytes: Annotated[int, Meta(ge=0)]
    within_s: Annotated[float, Meta(le=LONGEST_COPY_S)]
    value_s: Annotated[float, Meta(ge=0.0)]
    reason: Name
    via: Name = ""
    striped: bool = True


class AskCopy(_Request, frozen=True, tag="copy"):
    """Bring prefixes; answered with an `Outcome` each, in order, once all have ended."""

    orders: Annotated[tuple[Order, ...], Meta(max_length=MOST_MOVES)]


class AskCancel(_Request, frozen=True, tag="cancel"):
    """Call off the copies of the prefix that ends with a block; answered with their number."""

    tenant: Name
    block: Hash


class AskList(_Request, frozen=True, tag="list"):
    """Say what there is; answered with a `Listing`."""


class AskEvents(_Request, frozen=True, tag="events"):
    """Tell what happened from a batch on, `wait_s` later if nothing has; answered with `Events`."""

    epoch: int
    number: int
    wait_s: Annotated[float, Meta(ge=0.0, le=LONGEST_WAIT_S)]


class AskDrop(_Request, frozen=True, tag="drop"):
    """Give up those blocks of a chain that nobody leases; answered with their number."""

    tenant: Name
    chain: Chain


class AskFill(_Request, frozen=True, tag="fill"):
    """Put random bytes in place of KV, for trying out; answered with the number of blocks."""

    tenant: Name
    chain: Chain
    seed: int


Request = (
    AskLease
    | AskFollow
    | AskLanded
    | AskVerify
    | AskRelease
    | AskCopy
    | AskCancel
    | AskList
    | AskEvents
    | AskDrop
    | AskFill
)


class Failure(Struct, frozen=True):
    """An error of `replication.errors` as it goes over the wire."""

    kind: str
    message: str
    errno: int | None = None

    @classmethod
    def of(cls, error: ReplicationError) -> Self:
        """Return `error`, to be sent."""
        errno = error.errno if isinstance(error, TransportError) else None
        return cls(type(error).__name__, str(error), errno)

    def error(self) -> ReplicationError:
        """Return the error that was sent; one of a kind unknown here is a `ReplicationError`."""
        kind = getattr(errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, ReplicationError)):
            return ReplicationError(f"{self.kind}: {self.message}")
        if issubclass(kind, TransportError):
            return kind(self.message, errno=self.errno)
        return kind(self.message)


class Outcome(Struct, frozen=True):
    """A `Result` without the move, which whoever asked knows."""

    moved_bytes: int
    wasted_bytes: int
    took_s: float
    path: str
    retries: int
    failure: Failure | None

    @classmethod
    def of(cls, result: Result) -> Self:
        """Return `result`, to be sent."""
        return cls(
            result.moved_bytes,
            result.wasted_bytes,
            result.took_s,
            result.path,
            result.retries,
            None if result.error is None else Failure.of(result.error),
        )

    def result(self, move: Move) -> Result:
        """Return what came of `move`."""
        return Result(
            move,
            moved_bytes=self.moved_bytes,
            wasted_bytes=self.wasted_bytes,
            took_s=self.took_s,
            path=self.path,
            retries=self.retries,
            error=None if self.failure is None else self.failure.error(),
        )


class TenantBlocks(Struct, frozen=True):
    """How many blocks of a tenant are resident, how many were copied, how many of those leased."""

    tenant: str
    blocks: int
    copied: int
    used: int


class Listing(Struct, frozen=True):
    """What an agent has. `slots` are by state, `leases` and `copies` those that stand now.

    `transport` says in words how its memory can be read, and over what it has read whom.
    """

    name: str
    epoch: int
    block_bytes: int
    block_tokens: int
    slots: dict[str, int]
    leases: int
    copies: int
    tenants: tuple[TenantBlocks, ...]
    transport: tuple[str, ...]


def read_request(frame: bytes) -> Request:
    """Return what a peer asks.

    Raises
    ------
    Refused
        If it is no request, or one that goes beyond what is allowed. The message says where.
    """
    try:
        return msgspec.msgpack.decode(frame, type=Request)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(f"this is no request: {error}") from error


def write_request(request: Request) -> bytes:
    """Return the frame that asks `request`.

    Raises
    ------
    Refused
        If it is longer than a peer would take.
    """
    frame = msgspec.msgpack.encode(request)
    if len(frame) > REQUEST_BYTES:
        raise Refused(f"a request of {len(frame)} bytes, where {REQUEST_BYTES} are the most")
    return frame


def write_answer(answer: object) -> bytes:
    """Return the frame that answers a request, or says why it isn't answered."""
    if isinstance(answer, ReplicationError):
        return REFUSED + msgspec.msgpack.encode(Failure.of(answer))
    frame = OK + msgspec.msgpack.encode(answer)
    if len(frame) > ANSWER_BYTES:
        long = Refused(f"an answer of {len(frame)} bytes, where {ANSWER_BYTES} are the most")
        return write_answer(long)
    return frame


def read_answer(frame: bytes, kind: type[T]) -> T:
    """Return what was asked for.

    Raises
    ------
    ReplicationError
        The one that the peer sent in its place.
    Refused
        If this is no such answer.
    """
    try:
        if frame[:1] == REFUSED:
            raise msgspec.msgpack.decode(frame[1:], type=Failure).error()
        if frame[:1] == OK:
            return msgspec.msgpack.decode(frame[1:], type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(f"this is no answer: {error}") from error
    raise Refused("this is no answer")
