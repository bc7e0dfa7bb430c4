"""The control channel: who is let in, what is refused, and that nothing is waited for forever."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from errno import ECONNREFUSED, EHOSTUNREACH, ENOENT, ETIMEDOUT
from math import inf, nan
from pathlib import Path
from struct import pack

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replication.control import address as addresses
from replication.control import server as servers
from replication.control.address import CONTROL, Address, connect, listen
from replication.control.channel import Channel
from replication.control.messages import (
    ANSWER_BYTES,
    REQUEST_BYTES,
    AskCancel,
    AskDrop,
    AskLease,
    AskList,
    Failure,
    Request,
    read_answer,
    read_request,
    write_answer,
    write_request,
)
from replication.control.server import ControlServer
from replication.errors import (
    PeerGone,
    Refused,
    ReplicationError,
    TransferTimeout,
    TransportError,
)
from replication.transports import accepting
from replication.transports.tcp_frames import (
    KV,
    Protocol,
    admit,
    greet,
    receive_frame,
    send_frame,
)

TOKEN = b"a token of 24 characters"
ANY_PORT = Address("127.0.0.1", 0)
Answer = Callable[[Request], Awaitable[object]]


async def echo(request: Request) -> object:
    return request.block if isinstance(request, AskCancel) else None


class Lab:
    """A server that answers as it is told, and channels to it."""

    def __init__(self, answer: Answer = echo, where: Address = ANY_PORT) -> None:
        listener, self.address = listen(where)
        self.server = ControlServer(listener, TOKEN, answer)
        self.channels: list[Channel] = []

    def channel(self, token: bytes = TOKEN, patience_s: float = 0.0) -> Channel:
        self.channels.append(Channel(self.address, token, patience_s))
        return self.channels[-1]

    async def ask(self, number: int) -> int:
        return await self.channel().ask(AskCancel("t", number), int, 5.0)

    async def aclose(self) -> None:
        for channel in self.channels:
            channel.close()
        await self.server.aclose()


def talk(steps: Callable[[Lab], Awaitable[None]], answer: Answer = echo) -> None:
    """Start a server, take `steps`, and see that it still answers whoever behaves."""

    async def run() -> None:
        lab = Lab(answer)
        try:
            await steps(lab)
            if answer is echo:
                assert await lab.ask(7) == 7
        finally:
            await lab.aclose()

    asyncio.run(run())


async def ended(sock: socket.socket) -> bool:
    """Return once the peer has closed, which it has to."""
    async with asyncio.timeout(10.0):
        with suppress(ConnectionResetError):
            while await asyncio.get_running_loop().sock_recv(sock, 65536):
                pass
    return True


def test_requests_are_answered_one_after_the_other_on_one_connection() -> None:
    async def steps(lab: Lab) -> None:
        channel = lab.channel()
        for number in range(3):
            assert await channel.ask(AskCancel("t", number), int, 5.0) == number
        assert len(channel._idle) == 1

    talk(steps)


def test_requests_at_once_have_connections_of_their_own() -> None:
    waiting = asyncio.Barrier(3)

    async def together(request: Request) -> object:
        await waiting.wait()
        return await echo(request)

    async def steps(lab: Lab) -> None:
        channel = lab.channel()
        asked = (channel.ask(AskCancel("t", number), int, 5.0) for number in range(3))
        assert await asyncio.gather(*asked) == [0, 1, 2]

    talk(steps, together)


def test_a_unix_socket_is_for_its_user_only_and_taken_over_from_the_dead(tmp_path: Path) -> None:
    where = Address(path=str(tmp_path / "agent.sock"))

    async def run() -> None:
        lab = Lab(where=where)
        assert Path(where.path).stat().st_mode & 0o777 == 0o600
        assert await lab.ask(3) == 3
        with pytest.raises(TransportError, match="in use"):
            listen(where)
        assert await lab.ask(4) == 4
        await lab.aclose()
        assert Path(where.path).exists()  # as a process that was killed leaves it
        again = Lab(where=where)
        assert await again.ask(5) == 5
        await again.aclose()

    asyncio.run(run())
    assert [one.name for one in tmp_path.iterdir()] == ["agent.sock"]


def test_what_is_no_socket_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(TransportError, match="in use"):
        listen(Address(path=str(path)))
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "text", ["", "8018", "host:", ":8018", "host:99999", "unix:", "unix:" + 100 * "x", "host:-1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/run/btb", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.com:1", False),
        ("127.0.0.1.example.com:1", False),
    ],
)
def test_only_this_machine_counts_as_local(text: str, local: bool) -> None:
    assert Address.parse(text).local is local
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize("token", [b"", b"another token of 24 char"])
def test_who_has_another_token_is_refused_at_both_ends(token: bytes) -> None:
    async def steps(lab: Lab) -> None:
        with pytest.raises(Refused, match="token"):
            await lab.channel(token).ask(AskList(), int, 5.0)

    talk(steps)


def test_who_doesnt_prove_a_token_gets_no_answer() -> None:
    """The handshake is begun as it should be, and then goes straight to a request."""

    async def steps(lab: Lab) -> None:
        with socket.create_connection((lab.address.host, lab.address.port)) as sock:
            sock.setblocking(False)
            await send_frame(sock, CONTROL.magic + pack("!H", CONTROL.version) + bytes(16))
            await receive_frame(sock, 256)
            await send_frame(sock, write_request(AskCancel("t", 1)))
            assert (await receive_frame(sock, 256))[:1] == b"\1"
            assert await ended(sock)

    talk(steps)


def test_a_proof_for_another_protocol_is_none_for_this_one() -> None:
    """Somebody in between passes a control greeting on to a data port, and its answer back."""

    async def run() -> None:
        caller, near = socket.socketpair()
        far, port = socket.socketpair()
        with caller, near, far, port:
            for sock in (caller, near, far, port):
                sock.setblocking(False)
            greeting = asyncio.create_task(greet(caller, TOKEN, CONTROL))
            admitting = asyncio.create_task(admit(port, TOKEN, KV))
            hello = await receive_frame(near, 256)
            await send_frame(far, KV.magic + pack("!H", KV.version) + hello[6:])
            await send_frame(near, await receive_frame(far, 256))
            with pytest.raises(Refused, match="another token"):
                await asyncio.wait_for(greeting, 5.0)
            admitting.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("version", [0, 2, 65535])
def test_another_version_is_refused_with_both_numbers(version: int) -> None:
    async def steps(lab: Lab) -> None:
        with socket.create_connection((lab.address.host, lab.address.port)) as sock:
            sock.setblocking(False)
            with pytest.raises(Refused, match=f"version {version}, not {CONTROL.version}"):
                await greet(sock, TOKEN, Protocol(CONTROL.magic, version))

    talk(steps)


@pytest.mark.parametrize("size_bytes", [REQUEST_BYTES + 1, 2**32 - 1])
def test_a_frame_that_is_too_long_is_refused_before_it_is_read(size_bytes: int) -> None:
    async def steps(lab: Lab) -> None:
        sock = await connect(lab.address, TOKEN)
        with sock:
            await asyncio.get_running_loop().sock_sendall(sock, pack("!I", size_bytes))
            frame = await receive_frame(sock, ANSWER_BYTES)
            with pytest.raises(Refused, match=f"a frame of {size_bytes} bytes"):
                read_answer(frame, int)
            assert await ended(sock)

    talk(steps)


def test_a_frame_of_4_gib_in_place_of_a_greeting_ends_it() -> None:
    async def steps(lab: Lab) -> None:
        with socket.create_connection((lab.address.host, lab.address.port)) as sock:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(sock, pack("!I", 2**32 - 1))
            assert await ended(sock)

    talk(steps)


@settings(max_examples=40, deadline=None)
@given(garbage=st.lists(st.binary(max_size=300), max_size=5))
def test_garbage_in_place_of_a_greeting_hurts_nobody(garbage: list[bytes]) -> None:
    async def steps(lab: Lab) -> None:
        with socket.create_connection((lab.address.host, lab.address.port)) as sock:
            sock.setblocking(False)
            with suppress(ConnectionError):
                for part in garbage:
                    await asyncio.get_running_loop().sock_sendall(sock, part)

    talk(steps)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=9)
    | st.binary(max_size=9) | st.sampled_from(["lease", "verify", "copy", "events", "fill"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["type", "tenant", "chain", "lease", "orders", "number"]), inner, max_size=5
    ),
    max_leaves=12,
)  # fmt: skip
frames = st.binary(max_size=300) | values.map(msgspec.msgpack.encode)


@settings(max_examples=60, deadline=None)
@given(garbage=st.lists(frames, min_size=1, max_size=4))
def test_garbage_frames_are_refused_and_the_connection_goes_on(garbage: list[bytes]) -> None:
    async def steps(lab: Lab) -> None:
        with await connect(lab.address, TOKEN) as sock:
            for frame in garbage:
                await send_frame(sock, frame)
                answer = await receive_frame(sock, ANSWER_BYTES)
                try:
                    read_request(frame)
                except Refused:
                    with pytest.raises(Refused, match="this is no request"):
                        read_answer(answer, int)
            await send_frame(sock, write_request(AskCancel("t", 9)))
            assert read_answer(await receive_frame(sock, ANSWER_BYTES), int) == 9

    talk(steps)


@given(frame=frames)
def test_garbage_answers_are_an_error_of_ours(frame: bytes) -> None:
    with suppress(ReplicationError):
        assert isinstance(read_answer(frame, int), int)


def test_deeply_nested_frames_are_refused() -> None:
    deep = b"\xa1x" + 1_000_000 * b"\x91"
    with pytest.raises(Refused):
        read_request(b"\x82\xa4type\xa4list" + deep)
    with pytest.raises(Refused):
        read_request(b"\x82\xa4type\xa6verify\xa5lease\x81" + deep)
    with pytest.raises(Refused):
        read_answer(b"\1\x81" + deep, int)


@pytest.mark.parametrize("seconds", [0.0, -1.0, nan, inf, 3601.0])
def test_a_lease_of_no_or_endless_time_cant_be_asked_for(seconds: float) -> None:
    with pytest.raises(Refused, match="length_s"):
        read_request(write_request(AskLease("t", (1,), seconds)))


def test_a_chain_without_blocks_or_with_too_many_cant_be_asked_for() -> None:
    for chain in ((), tuple(range(65_537))):
        with pytest.raises(Refused, match="chain"):
            read_request(write_request(AskLease("t", chain, 1.0)))


def test_a_request_that_no_peer_would_take_is_not_sent() -> None:
    with pytest.raises(Refused, match="1048576 are the most"):
        write_request(AskDrop("t", (2**64 - 1,) * 120_000))


def test_an_answer_that_no_peer_would_take_is_an_error_in_its_place() -> None:
    with pytest.raises(Refused, match="16777216 are the most"):
        read_answer(write_answer(bytes(ANSWER_BYTES)), bytes)


def tree(kind: type[ReplicationError] = ReplicationError) -> list[type[ReplicationError]]:
    return [kind, *(below for one in kind.__subclasses__() for below in tree(one))]


@pytest.mark.parametrize("kind", tree(), ids=lambda kind: kind.__name__)
def test_every_error_crosses_as_what_it_is(kind: type[ReplicationError]) -> None:
    sent = kind("why", errno=EHOSTUNREACH) if issubclass(kind, TransportError) else kind("why")

    async def fails(request: Request) -> object:
        raise sent

    async def steps(lab: Lab) -> None:
        with pytest.raises(ReplicationError) as caught:
            await lab.channel().ask(AskList(), int, 5.0)
        assert type(caught.value) is kind
        assert str(caught.value) == "why"
        assert getattr(caught.value, "errno", None) == getattr(sent, "errno", None)

    talk(steps, fails)


def test_an_error_of_a_later_version_is_still_one_of_ours() -> None:
    assert type(Failure("OutOfTune", "a string broke").error()) is ReplicationError
    assert type(Failure("Sequence", "no error at all").error()) is ReplicationError


def test_a_bug_ends_the_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def buggy(request: Request) -> object:
        raise KeyError("no such thing")

    async def steps(lab: Lab) -> None:
        with pytest.raises(PeerGone):
            await lab.channel().ask(AskList(), int, 5.0)

    talk(steps, buggy)
    assert "a connection ended by a bug" in caplog.text


def test_who_isnt_there_is_gone_with_the_kernels_reason(tmp_path: Path) -> None:
    listener, where = listen(ANY_PORT)
    listener.close()

    async def asked(address: Address) -> PeerGone:
        with pytest.raises(PeerGone) as caught:
            await Channel(address, TOKEN, 0.0).ask(AskList(), int, 5.0)
        return caught.value

    assert asyncio.run(asked(where)).errno == ECONNREFUSED
    assert asyncio.run(asked(Address(path=str(tmp_path / "none")))).errno == ENOENT


def test_a_peer_that_starts_within_the_patience_is_found() -> None:
    listener, where = listen(ANY_PORT)
    listener.close()

    async def run() -> None:
        channel = Channel(where, TOKEN, patience_s=10.0)
        asking = asyncio.create_task(channel.ask(AskCancel("t", 4), int, 10.0))
        await asyncio.sleep(0.2)
        assert not asking.done()
        lab = Lab(where=where)
        assert await asking == 4
        channel.close()
        await lab.aclose()

    asyncio.run(run())


def test_a_peer_that_starts_anew_is_found_again_by_the_same_channel() -> None:
    async def run() -> None:
        lab = Lab()
        channel = Channel(lab.address, TOKEN, patience_s=5.0)
        for number in range(3):
            assert await channel.ask(AskCancel("t", number), int, 5.0) == number
            await lab.aclose()
            lab = Lab(where=lab.address)
        channel.close()
        await lab.aclose()

    asyncio.run(run())


def test_a_request_whose_connection_ends_is_sent_again() -> None:
    seen = 0

    async def dies_once(request: Request) -> object:
        nonlocal seen
        seen += 1
        if seen == 1:
            raise KeyError("the first one meets a bug, which ends the connection")
        return seen

    async def steps(lab: Lab) -> None:
        assert await lab.channel(patience_s=5.0).ask(AskList(), int, 5.0) == 2

    talk(steps, dies_once)


def test_patience_begins_when_the_peer_was_last_there() -> None:
    seen = 0

    async def dies_late(request: Request) -> object:
        nonlocal seen
        seen += 1
        if seen == 1:
            await asyncio.sleep(0.5)
            raise KeyError("a bug that shows after longer than the caller's patience")
        return seen

    async def steps(lab: Lab) -> None:
        assert await lab.channel(patience_s=0.3).ask(AskList(), int, 5.0) == 2

    talk(steps, dies_late)


def test_a_connection_that_ended_while_it_was_idle_is_not_used() -> None:
    async def run() -> None:
        lab = Lab()
        channel = Channel(lab.address, TOKEN, patience_s=0.0)
        assert await channel.ask(AskCancel("t", 1), int, 5.0) == 1
        await lab.aclose()
        lab = Lab(where=lab.address)
        assert await channel.ask(AskCancel("t", 2), int, 5.0) == 2
        channel.close()
        await lab.aclose()

    asyncio.run(run())


def test_an_error_that_the_peer_answers_with_is_not_asked_for_twice() -> None:
    seen = 0

    async def gone(request: Request) -> object:
        nonlocal seen
        seen += 1
        raise PeerGone("the one that I asked is gone")

    async def steps(lab: Lab) -> None:
        with pytest.raises(PeerGone):
            await lab.channel(patience_s=5.0).ask(AskList(), int, 5.0)
        assert seen == 1

    talk(steps, gone)


def test_a_peer_that_never_answers_is_waited_for_no_longer_than_was_said() -> None:
    async def never(request: Request) -> object:
        return await asyncio.Event().wait()

    async def steps(lab: Lab) -> None:
        with pytest.raises(TransferTimeout):
            await lab.channel(patience_s=60.0).ask(AskList(), int, 0.1)

    talk(steps, never)


def test_a_peer_that_takes_connections_and_says_nothing_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(addresses, "CONNECT_S", 0.1)

    async def run() -> None:
        listener, where = listen(ANY_PORT)
        with listener, pytest.raises(PeerGone, match="doesn't answer") as caught:
            await Channel(where, TOKEN, 0.0).ask(AskList(), int, 5.0)
        assert caught.value.errno == ETIMEDOUT

    asyncio.run(run())


def test_a_request_that_is_called_off_leaves_no_connection_that_has_its_answer() -> None:
    first = asyncio.Event()

    async def slow_once(request: Request) -> object:
        assert isinstance(request, AskCancel)
        if request.block == 1:
            await first.wait()
        return request.block

    async def steps(lab: Lab) -> None:
        channel = lab.channel()
        with pytest.raises(TransferTimeout):
            await channel.ask(AskCancel("t", 1), int, 0.1)
        first.set()
        assert await channel.ask(AskCancel("t", 2), int, 5.0) == 2

    talk(steps, slow_once)


def test_a_caller_that_takes_no_answer_off_us_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "SEND_S", 0.1)

    async def large(request: Request) -> object:
        return bytes(ANSWER_BYTES // 2)

    async def steps(lab: Lab) -> None:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect((lab.address.host, lab.address.port))
            sock.setblocking(False)
            await greet(sock, TOKEN, CONTROL)
            await send_frame(sock, write_request(AskList()))
            async with asyncio.timeout(10.0):
                while len(lab.server._callers):
                    await asyncio.sleep(0.01)
            got = 0
            with suppress(ConnectionResetError):
                while part := await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
                    got += len(part)
            assert got < ANSWER_BYTES // 2

    talk(steps, large)


def test_connections_that_are_silent_or_dont_greet_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "HANDSHAKE_S", 0.1)
    monkeypatch.setattr(servers, "IDLE_S", 0.1)

    async def steps(lab: Lab) -> None:
        with socket.create_connection((lab.address.host, lab.address.port)) as silent:
            silent.setblocking(False)
            assert await ended(silent)
        with await connect(lab.address, TOKEN) as idle:
            assert await ended(idle)
        with await connect(lab.address, TOKEN) as trickling:
            await asyncio.get_running_loop().sock_sendall(trickling, pack("!I", 100) + b"x")
            assert await ended(trickling)

    talk(steps)


def test_more_connections_than_are_held_are_closed_until_others_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accepting, "CONNECTIONS", 2)

    async def steps(lab: Lab) -> None:
        held = [await connect(lab.address, TOKEN) for _ in range(2)]
        with pytest.raises(PeerGone):
            await lab.ask(1)
        for sock in held:
            sock.close()
        assert await lab.channel(patience_s=5.0).ask(AskCancel("t", 2), int, 5.0) == 2

    talk(steps)


def test_closing_calls_off_what_is_asked_and_can_be_done_twice() -> None:
    async def run() -> None:
        started = asyncio.Event()

        async def never(request: Request) -> object:
            started.set()
            return await asyncio.Event().wait()

        lab = Lab(never)
        asking = asyncio.create_task(lab.channel().ask(AskList(), int, 60.0))
        await started.wait()
        await lab.server.aclose()
        await lab.server.aclose()
        with pytest.raises(PeerGone):
            await asking
        lab.channels[0].close()
        with pytest.raises(PeerGone, match="this end is closed"):
            await lab.channels[0].ask(AskList(), int, 1.0)

    asyncio.run(run())
