"""torch tensors as a pool's memory. The CUDA part has not run on hardware yet.

torch is imported when CUDA memory is first asked for: without it the module can be imported.
"""

import ctypes
from importlib import import_module
from typing import Any, Protocol

from replication.memory import DeviceMemory

PINNED_BYTES = 8 << 20
"""As large as a chunk: one is copied to the device while the next is read."""


class Tensor(Protocol):
    """What is asked of a tensor; those of torch have it."""

    @property
    def nbytes(self) -> int:
        """Return its size."""
        ...

    @property
    def is_cuda(self) -> bool:
        """Tell whether it is on a CUDA device."""
        ...

    def is_contiguous(self) -> bool:
        """Tell whether its bytes follow each other."""
        ...

    def data_ptr(self) -> int:
        """Return where its bytes are."""
        ...


def host_memory(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor in the host's memory, not a copy. Keep the tensor meanwhile.

    Raises
    ------
    ValueError
        If it is on a device, or its bytes don't follow each other.
    """
    if tensor.is_cuda or not tensor.is_contiguous():
        raise ValueError("a contiguous tensor in the host's memory is needed")
    held = (ctypes.c_ubyte * tensor.nbytes).from_address(tensor.data_ptr())
    held._tensor = tensor  # type: ignore[attr-defined]  # it must not be freed before its bytes
    return memoryview(held).cast("B")


def cuda_memory(tensor: Any, buffers: int = 4, pinned_bytes: int = PINNED_BYTES) -> DeviceMemory:
    """Return a torch tensor's memory on a CUDA device, with pinned buffers and streams of its own.

    Raises
    ------
    ImportError
        If there is no torch.
    ValueError
        If the tensor isn't on a CUDA device, or its bytes don't follow each other.
    """
    if not tensor.is_cuda or not tensor.is_contiguous():
        raise ValueError("a contiguous tensor on a CUDA device is needed")
    torch = import_module("torch")
    there = tensor.view(torch.uint8).reshape(-1)
    lanes = []
    for _ in range(buffers):
        pinned = torch.empty(pinned_bytes, dtype=torch.uint8, pin_memory=True)
        lanes.append((host_memory(pinned), CudaStream(torch, there)))
    return DeviceMemory(tensor.nbytes, lanes)


class CudaStream:
    """Copies on a CUDA stream of its own, to and from one tensor of bytes."""

    def __init__(self, torch: Any, there: Any) -> None:
        self._torch = torch
        self._there = there
        self._stream = torch.cuda.Stream(there.device)

    def to_device(self, offset: int, source: memoryview) -> None:
        """Begin to copy pinned memory to the device."""
        with self._torch.cuda.stream(self._stream):
            here = self._torch.frombuffer(source, dtype=self._torch.uint8)
            self._there[offset : offset + source.nbytes].copy_(here, non_blocking=True)

    def to_host(self, offset: int, target: memoryview) -> None:
        """Begin to copy from the device. Memory that isn't pinned is waited for at once."""
        with self._torch.cuda.stream(self._stream):
            here = self._torch.frombuffer(target, dtype=self._torch.uint8)
            here.copy_(self._there[offset : offset + target.nbytes], non_blocking=True)

    def wait(self) -> None:
        """Return once all that was begun is done."""
        self._stream.synchronize()
