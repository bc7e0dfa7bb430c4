"""How verbs connections are driven."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VerbsSettings:
    """How a connection is driven.

    A read is repeated `retries` times, each after 4.096 µs x 2^`ack_timeout` (14 is 67 ms), before
    the peer counts as gone. `gid_index` None takes the first RoCE v2 address made of an IPv4 one,
    else the first RoCE v2 address.
    """

    port: int = 1
    gid_index: int | None = None
    chunk_bytes: int = 1 << 20
    outstanding: int = 64
    max_spans: int = 16
    ack_timeout: int = 14
    retries: int = 7

    def __post_init__(self) -> None:
        if min(self.chunk_bytes, self.outstanding, self.max_spans) < 1:
            raise ValueError("chunk_bytes, outstanding and max_spans are at least 1")
        if not (1 <= self.ack_timeout <= 31 and 0 <= self.retries <= 7):
            raise ValueError("ack_timeout is 1 to 31, retries 0 to 7")
