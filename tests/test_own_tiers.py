"""A prefix from peer, own RAM or own disk into the pool, all by one executor."""

from pathlib import Path

from replicas import CHAIN, LAYOUT, Replica, move, soon

from replication.disk import DiskTier
from replication.executor import Executor
from replication.target import Target
from replication.transports.base import Transport
from replication.transports.memory import MemoryTransport
from replication.transports.shm import ShmTransport


def test_a_prefix_goes_down_the_tiers_and_comes_back_from_the_nearest(tmp_path: Path) -> None:
    async def scenario() -> None:
        network: dict[str, MemoryTransport] = {}
        shm = ShmTransport()
        peer = Replica(MemoryTransport("a", network), lambda: 0.0)
        here = Replica(shm, lambda: 0.0, shm.allocate)
        ram = Replica(shm, lambda: 0.0, shm.allocate)
        disk = DiskTier("disk", tmp_path, LAYOUT.layer_bytes, 8, lambda: 0.0)
        others: dict[str, Transport] = {"ram": shm, "disk": disk}
        executor = Executor(
            {
                "here": Target(here.pool, MemoryTransport("here", network), others),
                "ram": Target(ram.pool, shm),
            },
            {"a": peer.holder, "here": here.holder, "ram": ram.holder, "disk": disk},
            clock=lambda: 0.0,
        )
        peer.compute(CHAIN)

        async def bring(target: str, *holders: str) -> str:
            (result,) = await executor.run([move(holders=holders, target=target)])
            assert result.ok
            return result.path

        assert await bring("here", "ram", "disk", "a") == "a -> here over MemoryTransport"
        assert await bring("ram", "here") == "here -> ram over ShmTransport"
        assert await disk.keep(here.pool, "t", CHAIN) == 3
        for gone, path in (
            (peer, "ram -> here over ShmTransport"),
            (ram, "disk -> here over DiskTier"),
        ):
            for block in CHAIN:
                here.pool.reclaim("t", block)
                gone.pool.reclaim("t", block)
            assert await bring("here", "a", "ram", "disk") == path
            assert here.holds(CHAIN)
        await shm.aclose()

    soon(scenario())
