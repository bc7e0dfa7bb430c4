"""A replica that copies go to."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from replication.store import BlockPool
from replication.transports.base import Transport


@dataclass(frozen=True, slots=True)
class Target:
    """A replica's pool, and the transport that writes into it.

    `others` names the holders that are read another way: own memory, own disk.
    """

    pool: BlockPool
    transport: Transport
    others: Mapping[str, Transport] = field(default_factory=dict)

    def transport_to(self, name: str) -> Transport:
        """Return what reads from a holder."""
        return self.others.get(name, self.transport)
