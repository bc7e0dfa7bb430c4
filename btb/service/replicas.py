"""Adds, shows and removes replicas."""

from btb.service.answers import ReplicaAnswer, ReplicasAnswer
from btb.service.bodies import ReplicaBody
from btb.service.errors import BadField, Refused
from btb.service.parts import Parts
from btb.service.replica import Replica
from btb.simulation.setups import SETUPS, Setup


class Replicas:
    """What the addresses under `/v1/replicas` do."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def list(self) -> ReplicasAnswer:
        """Return all replicas."""
        return ReplicasAnswer(replicas=[self._answer(one) for one in self._parts.cluster.replicas])

    def show(self, name: str) -> ReplicaAnswer:
        """Return one replica.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        replica = self._parts.cluster.find(name)
        if replica is None:
            raise _unknown(name)
        return self._answer(replica)

    def put(self, name: str, body: ReplicaBody) -> ReplicaAnswer:
        """Return the replica `name`, made if need be, with its report taken in.

        Raises
        ------
        Refused
            If the setup is unknown, or there are as many replicas as are taken.
        """
        cluster, most = self._parts.cluster, self._parts.limits.replicas
        setup = _setup(body.setup) if body.setup else None
        if cluster.find(name) is None and len(cluster) >= most:
            raise Refused(409, f"there are {most} replicas, and no more are taken", cause="limit")
        replica = cluster.add(name, setup)
        requests = None
        if body.running is not None or body.waiting is not None:
            requests = (body.running or 0) + (body.waiting or 0)
        replica.take_report(requests, body.free_bytes)
        return self._answer(replica)

    def remove(self, name: str) -> None:
        """Forget a replica.

        Raises
        ------
        Refused
            If there is none of this name.
        """
        if self._parts.cluster.remove(name) is None:
            raise _unknown(name)

    def _answer(self, replica: Replica) -> ReplicaAnswer:
        return ReplicaAnswer(
            replica=replica.name,
            setup=replica.setup.name,
            requests=replica.requests(),
            routed=replica.routed,
            queue_s=replica.queue_s(self._parts.clock.now_s()),
            free_bytes=replica.free_bytes(),
            resident_blocks=len(replica.residency),
        )


def _setup(name: str) -> Setup:
    if name not in SETUPS:
        known = ", ".join(sorted(SETUPS))
        raise BadField(f"is unknown; known are {known}", "body", "setup")
    return SETUPS[name]


def _unknown(name: str) -> Refused:
    return Refused(404, f"no replica is called {name}", cause="not_found", at=("path", "name"))
