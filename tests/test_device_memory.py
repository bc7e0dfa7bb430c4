"""Memory that only a stream reaches: a fake device, and tensors that only look like torch's."""

import asyncio
import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

import pytest
from replicas import CHAIN, LAYOUT, Lab, Replica, contents, move, soon

from replication.executor import Executor
from replication.memory import DeviceMemory
from replication.store import BlockPool
from replication.target import Target
from replication.tensors import cuda_memory, host_memory
from replication.transports.base import Piece, Region
from replication.transports.memory import MemoryTransport, corrupted, nth, stalled


class FakeDevice:
    """Memory and streams that do nothing before somebody waits for them, in a thread or not."""

    def __init__(self, size_bytes: int) -> None:
        self.memory = bytearray(size_bytes)
        self.under_way = 0


class FakeStream:
    def __init__(self, device: FakeDevice) -> None:
        self._device = device
        self._begun: list[tuple[memoryview, memoryview]] = []
        self._lock = threading.Lock()

    def to_device(self, offset: int, source: memoryview) -> None:
        there = memoryview(self._device.memory)[offset : offset + source.nbytes]
        self._begin(there, source)

    def to_host(self, offset: int, target: memoryview) -> None:
        self._begin(target, memoryview(self._device.memory)[offset : offset + target.nbytes])

    def wait(self) -> None:
        with self._lock:
            for target, source in self._begun:
                target[:] = source
                self._device.under_way -= 1
            self._begun.clear()

    def _begin(self, target: memoryview, source: memoryview) -> None:
        with self._lock:
            self._device.under_way += 1
            self._begun.append((target, source))


class DeviceLab(Lab):
    """Replica b's memory is on devices, one a rank."""

    def __init__(self, buffer_bytes: int, buffers: int = 2) -> None:
        super().__init__()
        self.devices = [FakeDevice(LAYOUT.region_bytes(rank)) for rank in LAYOUT.ranks]
        memories = [on_device(device, buffer_bytes, buffers) for device in self.devices]
        self.b.pool = BlockPool(LAYOUT, memories, epoch=1)

    def check_device(self) -> None:
        """All of CHAIN is there, right to the byte."""
        lease = self.b.pool.lease("t", CHAIN, inf, 0.0)
        self.b.pool.release(lease)
        for rank in LAYOUT.ranks:
            for block, slot in zip(CHAIN, lease.slots, strict=True):
                for layer, (offset, size_bytes) in enumerate(LAYOUT.stretches(rank, slot)):
                    found = self.devices[rank].memory[offset : offset + size_bytes]
                    assert found == contents("t", block, rank, layer, size_bytes)


def on_device(device: FakeDevice, buffer_bytes: int, buffers: int) -> DeviceMemory:
    lanes = [(memoryview(bytearray(buffer_bytes)), FakeStream(device)) for _ in range(buffers)]
    return DeviceMemory(len(device.memory), lanes)


@pytest.mark.parametrize("buffer_bytes", [1, 7, 64, 4096])
@pytest.mark.parametrize("buffers", [1, 3])
def test_a_copy_into_a_device_is_right_to_the_byte(buffer_bytes: int, buffers: int) -> None:
    lab = DeviceLab(buffer_bytes, buffers)
    (result,) = lab.run(move())
    assert result.ok
    lab.check_device()
    assert all(device.under_way == 0 for device in lab.devices)
    lab.check_nothing_is_left()


def test_what_is_wrong_on_the_device_is_found_there() -> None:
    lab = DeviceLab(64)
    lab.wire = nth(2, corrupted)
    (result,) = lab.run(move())
    assert not result.ok
    lab.check_nothing_came()


@pytest.mark.parametrize("piece", range(1, 8))
def test_after_a_cancel_nothing_is_under_way_and_no_buffer_is_lost(piece: int) -> None:
    lab = DeviceLab(30, buffers=1)
    stuck: list[Region] = []

    async def sticks(region: Region, piece: Piece, held: memoryview) -> bytes | memoryview:
        stuck.append(region)
        return await stalled(region, piece, held)

    lab.wire = nth(piece, sticks)

    async def scenario() -> None:
        executor = lab.executor()
        running = asyncio.create_task(executor.run([move()]))
        while not stuck:
            await asyncio.sleep(0.001)
        await executor.aclose()
        (result,) = await running
        assert not result.ok
        assert all(device.under_way == 0 for device in lab.devices)
        assert (await executor.run([move()]))[0].ok

    soon(scenario())
    lab.check_device()


def test_the_next_buffer_is_filled_while_one_goes_to_the_device() -> None:
    device = FakeDevice(100)
    held, going = threading.Event(), threading.Event()

    class Slow(FakeStream):
        def wait(self) -> None:
            going.set()
            assert held.wait(30.0)
            super().wait()

    lanes = [(memoryview(bytearray(50)), Slow(device)) for _ in range(2)]
    memory = DeviceMemory(100, lanes)
    network: dict[str, MemoryTransport] = {}
    peer, reader = MemoryTransport("a", network), MemoryTransport("b", network)
    region = peer.register(memoryview(bytes(range(100))))

    async def scenario() -> None:
        halves = [[Piece(0, 0, 50)], [Piece(50, 50, 50)]]
        async with asyncio.TaskGroup() as group:
            for half in halves:
                group.create_task(memory.fill(reader, region, half, 60.0))
            while device.under_way < 2:
                await asyncio.sleep(0.001)
            assert going.is_set()
            held.set()

    soon(scenario())
    assert device.memory == bytes(range(100))


@pytest.mark.parametrize("piece", [Piece(0, 90, 11), Piece(0, -1, 5)])
def test_a_piece_outside_of_the_device_is_refused(piece: Piece) -> None:
    memory = on_device(FakeDevice(100), 10, 1)
    network: dict[str, MemoryTransport] = {}
    peer = MemoryTransport("a", network)
    region = peer.register(memoryview(bytes(100)))
    with pytest.raises(ValueError, match="outside"):
        soon(memory.fill(peer, region, [piece], 1.0))


@pytest.mark.parametrize("sizes", [[], [0], [5, 6]])
def test_buffers_have_one_size(sizes: list[int]) -> None:
    device = FakeDevice(10)
    with pytest.raises(ValueError, match="pinned buffers of one size"):
        DeviceMemory(10, [(memoryview(bytearray(size)), FakeStream(device)) for size in sizes])


class FakeTensor:
    """Bytes at an address."""

    is_cuda = False

    def __init__(self, size_bytes: int, contiguous: bool = True) -> None:
        self.nbytes = size_bytes
        self._held = (ctypes.c_ubyte * size_bytes)()
        self._contiguous = contiguous

    def is_contiguous(self) -> bool:
        return self._contiguous

    def data_ptr(self) -> int:
        return ctypes.addressof(self._held)

    def at(self, offset: int) -> int:
        return self._held[offset]


def test_a_pool_can_lie_in_tensors() -> None:
    lab = Lab()
    tensors = [FakeTensor(LAYOUT.region_bytes(rank)) for rank in LAYOUT.ranks]
    there = Replica(lab.b.transport, lambda: 0.0)
    there.memories = [host_memory(tensor) for tensor in tensors]
    there.pool = BlockPool(LAYOUT, there.memories, epoch=1)
    target = Target(there.pool, lab.b.transport)
    executor = Executor({"b": target}, lab.holders, clock=lambda: 0.0)
    (result,) = asyncio.run(executor.run([move()]))
    assert result.ok
    assert there.holds(CHAIN)
    assert tensors[0].at(0) == there.memories[0][0]


class OnDevice(FakeTensor):
    is_cuda = True


def test_a_tensor_elsewhere_or_in_pieces_is_refused() -> None:
    for tensor in (OnDevice(4), FakeTensor(4, contiguous=False)):
        with pytest.raises(ValueError, match="in the host's memory"):
            host_memory(tensor)
    for other in (FakeTensor(4), OnDevice(4, contiguous=False)):
        with pytest.raises(ValueError, match="on a CUDA device"):
            cuda_memory(other)


class FakeTorch:
    """As much of torch as is called: bytes on a device, and copies that a stream holds back."""

    uint8 = "uint8"

    def __init__(self) -> None:
        self.cuda = self
        self.current: list[FakeCudaStream] = []
        self.pinned: list[FakeTensor] = []

    def empty(self, size_bytes: int, dtype: str, pin_memory: bool) -> FakeTensor:
        assert (dtype, pin_memory) == ("uint8", True)
        self.pinned.append(FakeTensor(size_bytes))
        return self.pinned[-1]

    def frombuffer(self, buffer: memoryview, dtype: str) -> "Bytes":
        assert dtype == "uint8"
        return Bytes(self, buffer)

    def Stream(self, device: str) -> "FakeCudaStream":  # noqa: N802
        assert device == "cuda:3"
        return FakeCudaStream()

    @contextmanager
    def stream(self, stream: "FakeCudaStream") -> Iterator[None]:
        self.current.append(stream)
        yield
        self.current.pop()


class FakeCudaStream:
    def __init__(self) -> None:
        self.begun: list[tuple[memoryview, memoryview]] = []

    def synchronize(self) -> None:
        for target, source in self.begun:
            target[:] = source
        self.begun.clear()


class Bytes:
    """A tensor of bytes, on the host or on a device."""

    is_cuda = True
    device = "cuda:3"

    def __init__(self, torch: FakeTorch, held: memoryview) -> None:
        self._torch = torch
        self.held = held
        self.nbytes = held.nbytes

    def is_contiguous(self) -> bool:
        return True

    def view(self, dtype: str) -> "Bytes":
        assert dtype == "uint8"
        return self

    def reshape(self, size: int) -> "Bytes":
        assert size == -1
        return self

    def __getitem__(self, stretch: slice) -> "Bytes":
        return Bytes(self._torch, self.held[stretch])

    def copy_(self, source: "Bytes", non_blocking: bool) -> None:
        assert non_blocking
        self._torch.current[-1].begun.append((self.held, source.held))


def test_a_cuda_tensor_is_filled_by_pinned_buffers_and_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    lab = Lab()
    held = [memoryview(bytearray(LAYOUT.region_bytes(rank))) for rank in LAYOUT.ranks]
    memories = [cuda_memory(Bytes(torch, one), buffers=2, pinned_bytes=50) for one in held]
    lab.b.pool = BlockPool(LAYOUT, memories, epoch=1)
    (result,) = lab.run(move())
    assert result.ok
    assert [tensor.nbytes for tensor in torch.pinned] == [50] * 4
    lab.b.memories = held
    assert lab.b.holds(CHAIN)
