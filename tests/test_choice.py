"""Which of several transports a read takes, and what is said of it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from errno import EACCES

import pytest

from replication.errors import TransportError
from replication.transports.base import Piece, Region
from replication.transports.choice import KINDS, AutoTransport, this_host
from replication.transports.tcp import TcpTransport


class Noted:
    """A part that offers what it is given, and notes what it is asked for."""

    digest_every = 1

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[Region] = []

    def register(self, memory: memoryview) -> Region:
        return Region(f"peer by {self.name}", 5, f"key by {self.name}", memory.nbytes)

    async def read(
        self, region: Region, pieces: Sequence[Piece], into: memoryview, deadline_s: float
    ) -> None:
        self.asked.append(region)

    async def aclose(self) -> None:
        pass


def made(kinds: Sequence[str], host: str) -> AutoTransport:
    return AutoTransport({kind: Noted(kind) for kind in kinds}, host, ())


@pytest.mark.parametrize(
    ("owner", "reader", "same_host", "taken"),
    [
        (KINDS, KINDS, True, "shm"),
        (KINDS, KINDS, False, "verbs"),
        (KINDS, ("shm", "tcp"), True, "shm"),
        (KINDS, ("shm", "tcp"), False, "tcp"),
        (("tcp",), KINDS, True, "tcp"),
        (("verbs",), KINDS, False, "verbs"),
        (("verbs", "tcp"), ("shm", "tcp"), True, "tcp"),
    ],
)
def test_the_best_way_that_both_ends_have_is_taken(
    owner: Sequence[str], reader: Sequence[str], same_host: bool, taken: str
) -> None:
    async def scenario() -> None:
        region = made(owner, "one").register(memoryview(bytearray(9)))
        auto = made(reader, "one" if same_host else "two")
        await auto.read(region, [Piece(0, 0, 9)], memoryview(bytearray(9)), 1.0)
        asked = {kind: part.asked for kind, part in auto._parts.items() if isinstance(part, Noted)}
        assert asked.pop(taken) == [Region(f"peer by {taken}", 5, f"key by {taken}", 9)]
        assert not any(asked.values())
        (words,) = auto.paths.values()
        assert f"over {taken}" in words
        assert ("this host" in words) is same_host

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("owner", "reader", "same_host"),
    [(("tcp",), ("shm",), True), (("shm",), ("shm",), False), (("shm", "tcp"), ("verbs",), True)],
)
def test_where_there_is_no_common_way_the_error_names_both(
    owner: Sequence[str], reader: Sequence[str], same_host: bool
) -> None:
    region = made(owner, "one").register(memoryview(bytearray(9)))
    with pytest.raises(TransportError, match=f"offers {', '.join(owner)}, here is {reader[0]}"):
        made(reader, "one" if same_host else "two").choose(region)


def test_regions_of_other_transports_are_refused() -> None:
    with pytest.raises(TransportError) as refused:
        made(KINDS, "one").choose(Region("p", 1, "12:3:00ff", 9))
    assert refused.value.errno == EACCES


def test_between_hosts_tcp_brings_the_bytes_and_keeps_their_keys() -> None:
    async def scenario() -> None:
        owner = await AutoTransport.start(b"a token", kind="auto", epoch=7)
        reader = AutoTransport({"tcp": await TcpTransport.start(b"a token")}, "elsewhere", ())
        try:
            memory, into = owner.allocate(5), memoryview(bytearray(5))
            memory[:] = b"hello"
            region = owner.register(memory)
            await reader.read(region, [Piece(0, 0, 5)], into, 10.0)
            assert into == memory
            with pytest.raises(TransportError) as old:
                await reader.read(replace(region, epoch=6), [Piece(0, 0, 5)], into, 10.0)
            assert old.value.errno == EACCES
        finally:
            await reader.aclose()
            await owner.aclose()

    asyncio.run(scenario())


def test_what_is_not_offered_is_said_with_the_reason() -> None:
    async def scenario() -> None:
        auto = await AutoTransport.start(b"a token")
        await auto.aclose()
        for kind in KINDS:
            (note,) = (note for note in auto.notes if note.startswith(kind))
            offered = kind in auto._parts
            assert note == f"{kind} is offered" or (not offered and "is not offered: " in note)
        assert {"shm", "tcp"} <= auto._parts.keys()

    asyncio.run(scenario())


def test_one_kind_alone_is_had_or_refused() -> None:
    async def scenario() -> None:
        only = await AutoTransport.start(b"a token", kind="tcp")
        assert only._parts.keys() == {"tcp"}
        assert len(only.allocate(10)) == 10
        await only.aclose()
        with pytest.raises(TransportError):
            await AutoTransport.start(b"a token", kind="tcp", host="203.0.113.1")
        with pytest.raises(ValueError, match="known are auto, shm, verbs, tcp"):
            await AutoTransport.start(b"a token", kind="carrier pigeon")

    asyncio.run(scenario())


def test_a_host_has_one_name() -> None:
    assert this_host() == this_host()
    assert len(this_host()) == 32
