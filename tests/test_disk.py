"""Own disk as a tier: exact, and what is broken is treated as absent."""

import asyncio
import logging
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replicas import CHAIN, LAYOUT, Lab, move, soon

from replication.disk import DiskTier
from replication.disk_files import DATA_AT, cut_of, file_name
from replication.errors import Corrupted, LeaseLost, NoRoom, ReplicationError, TransportError
from replication.executor import Executor
from replication.layout import Layout
from replication.result import Result
from replication.target import Target
from replication.transports.base import Piece, Region


class DiskLab(Lab):
    """Replica b may be copied to from its own disk, which is given what a holds."""

    def __init__(self, folder: Path, most_blocks: int = 8) -> None:
        super().__init__()
        self.folder = folder
        self.most_blocks = most_blocks
        self.start()

    def start(self) -> None:
        self.disk = DiskTier(
            "b/disk", self.folder, LAYOUT.layer_bytes, self.most_blocks, lambda: self.now_s
        )
        self.holders["b/disk"] = self.disk

    def keep(self, chain: tuple[int, ...] = CHAIN, tenant: str = "t") -> int:
        return asyncio.run(self.disk.keep(self.a.pool, tenant, chain))

    def load(self, *others: str, chunk_bytes: int = 64) -> Result:
        executor = Executor(
            {"b": Target(self.b.pool, self.b.transport, {"b/disk": self.disk})},
            self.holders,
            clock=lambda: self.now_s,
            chunk_bytes=chunk_bytes,
            stripes=1,
        )
        (result,) = asyncio.run(executor.run([move(holders=("b/disk", *others))]))
        return result

    def path(self, block: int) -> Path:
        return self.folder / cut_of(LAYOUT) / file_name("t", block)

    def files(self) -> list[Path]:
        return list((self.folder / cut_of(LAYOUT)).iterdir())


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 120, 10_000])
def test_what_was_kept_comes_back_right_to_the_byte(tmp_path: Path, chunk_bytes: int) -> None:
    lab = DiskLab(tmp_path)
    assert lab.keep() == 3
    result = lab.load(chunk_bytes=chunk_bytes)
    assert result.ok
    assert result.path == "b/disk -> b over DiskTier"
    assert lab.b.holds(CHAIN)
    lab.check_nothing_is_left()


def test_a_block_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    lab = DiskLab(tmp_path)
    assert lab.keep(CHAIN[:2]) == 2
    before = lab.path(CHAIN[0]).stat().st_mtime_ns
    assert lab.keep() == 1
    assert lab.path(CHAIN[0]).stat().st_mtime_ns == before


def test_what_was_kept_is_found_again_by_a_new_start(tmp_path: Path) -> None:
    lab = DiskLab(tmp_path)
    lab.keep()
    torn = lab.path(1).with_suffix(".1234.part")
    torn.write_bytes(b"torn")
    lab.start()
    assert lab.disk.holds("t", CHAIN) == 3
    assert lab.load().ok
    assert not torn.exists()


def test_another_tenant_or_another_layout_finds_nothing(tmp_path: Path) -> None:
    lab = DiskLab(tmp_path)
    lab.keep()
    assert lab.disk.holds("u", CHAIN) == 0
    with pytest.raises(LeaseLost):
        asyncio.run(lab.disk.lease("u", CHAIN, 1.0))
    other = DiskTier("x", tmp_path, ((60, 20), (40,)), 8, lambda: 0.0)
    assert other.holds("t", CHAIN) == 0
    lab.start()
    assert lab.disk.holds("t", CHAIN) == 3


def damage(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "too long": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "no head": lambda path: damage(path, 0),
    "another block's": lambda path: path.write_bytes(
        path.with_name(file_name("t", CHAIN[0])).read_bytes()
    ),
    "the first byte wrong": lambda path: damage(path, DATA_AT),
    "the last byte wrong": lambda path: damage(path, -1),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("restarted", [True, False])
def test_a_broken_file_is_absent_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, restarted: bool
) -> None:
    lab = DiskLab(tmp_path)
    lab.keep()
    DAMAGES[kind](lab.path(CHAIN[1]))
    if restarted:
        lab.start()
    with caplog.at_level(logging.WARNING):
        result = lab.load("a")
    assert result.ok
    assert result.path.startswith(("a ->", "b/disk + a ->"))
    assert lab.b.holds(CHAIN)
    assert lab.disk.holds("t", CHAIN) == 1
    assert not lab.path(CHAIN[1]).exists()
    if not (restarted and kind == "gone"):
        assert lab.disk.damaged == 1
        assert "treated as absent" in caplog.text
    lab.check_nothing_is_left()


@pytest.mark.parametrize("kind", DAMAGES)
def test_without_another_holder_a_broken_file_leaves_nothing(tmp_path: Path, kind: str) -> None:
    lab = DiskLab(tmp_path)
    lab.keep()
    DAMAGES[kind](lab.path(CHAIN[2]))
    result = lab.load()
    assert isinstance(result.error, (LeaseLost, Corrupted))
    lab.check_nothing_came()
    assert lab.keep() == 1
    assert lab.load().ok


def test_the_longest_unused_makes_room_and_what_is_leased_does_not(tmp_path: Path) -> None:
    lab = DiskLab(tmp_path, most_blocks=3)
    lab.a.compute((21, 22, 23, 24))
    lab.keep()
    lease = asyncio.run(lab.disk.lease("t", CHAIN[:1], 10.0)).lease
    lab.keep((21, 22))
    assert lab.disk.holds("t", CHAIN) == 1
    assert lab.disk.holds("t", (21, 22)) == 2
    assert len(lab.files()) == 3
    asyncio.run(lab.disk.lease("t", (21, 22), 10.0))
    with pytest.raises(NoRoom):
        lab.keep((23,))
    asyncio.run(lab.disk.release(lease))
    lab.keep((23,))
    assert lab.disk.holds("t", CHAIN) == 0
    lab.now_s = 20.0
    lab.keep((24,))
    assert len(lab.files()) == 3


def test_a_block_that_is_taken_back_while_it_is_written_is_not_kept(tmp_path: Path) -> None:
    lab = DiskLab(tmp_path)

    async def scenario() -> None:
        keeping = asyncio.create_task(lab.disk.keep(lab.a.pool, "t", CHAIN))
        await asyncio.sleep(0)
        lab.a.pool.reclaim("t", CHAIN[0])
        with pytest.raises(ReplicationError):
            await keeping

    soon(scenario())
    assert lab.disk.holds("t", CHAIN) == 0
    assert lab.files() == []
    lab.check_nothing_is_left()


def test_a_disk_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    lab = DiskLab(tmp_path)
    lab.path(1).parent.rmdir()
    with pytest.raises(TransportError):
        lab.keep()


def test_a_lease_that_has_run_out_vouches_for_nothing(tmp_path: Path) -> None:
    lab = DiskLab(tmp_path)
    lab.keep()
    lease = asyncio.run(lab.disk.lease("t", CHAIN, 10.0)).lease
    lab.now_s = 11.0
    with pytest.raises(LeaseLost):
        asyncio.run(lab.disk.verify(lease))


@pytest.mark.parametrize(
    ("region", "piece"),
    [
        (Region("b/disk", 1, "0", 640), Piece(640, 0, 1)),
        (Region("b/disk", 1, "2", 640), Piece(0, 0, 1)),
        (Region("b/disk", 1, "x", 640), Piece(0, 0, 1)),
        (Region("c", 1, "0", 640), Piece(0, 0, 1)),
        (Region("b/disk", 1, "0", 640), Piece(7 * 30, 0, 1)),
    ],
)
def test_what_is_not_there_can_not_be_read(tmp_path: Path, region: Region, piece: Piece) -> None:
    lab = DiskLab(tmp_path)
    with pytest.raises(TransportError):
        asyncio.run(lab.disk.read(region, [piece], memoryview(bytearray(9)), inf))


@given(
    layer_bytes=st.lists(
        st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3
    ).map(tuple)
)
def test_every_byte_of_a_layout_is_found_again(layer_bytes: tuple[tuple[int, ...], ...]) -> None:
    layout = Layout(3, layer_bytes)
    for rank in layout.ranks:
        for slot in range(3):
            at = sum(map(layout.rank_bytes, range(rank)))
            for offset, size_bytes in layout.stretches(rank, slot):
                for number in range(size_bytes):
                    found = layout.locate(rank, offset + number)
                    assert found == (slot, at + number, size_bytes - number)
                at += size_bytes
        with pytest.raises(ValueError, match="outside"):
            layout.locate(rank, layout.region_bytes(rank))
