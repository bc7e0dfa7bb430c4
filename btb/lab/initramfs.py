"""The first file system of a guest: busybox, kernel modules, and what runs first."""

from collections.abc import Mapping
from dataclasses import dataclass

MODE_FILE, MODE_FOLDER = 0o100755, 0o040755


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder, by its path in the archive."""

    path: str
    mode: int
    content: bytes = b""


def contents(busybox: bytes, modules: Mapping[str, bytes], init: str) -> list[Entry]:
    """Return what the archive holds; `modules` are in the order in which they are loaded."""
    listed = "".join(f"{name}\n" for name in modules)
    return [
        Entry("bin", MODE_FOLDER),
        Entry("bin/busybox", MODE_FILE, busybox),
        Entry("init", MODE_FILE, init.encode()),
        Entry("modules", MODE_FOLDER),
        Entry("modules/order", MODE_FILE, listed.encode()),
        *(Entry(f"modules/{name}.ko", MODE_FILE, content) for name, content in modules.items()),
    ]


def archive(entries: list[Entry]) -> bytes:
    """Return the entries as a cpio archive in the form that a kernel unpacks ("newc").

    The header is six magic digits and thirteen numbers of eight hex digits; name and content are
    each filled up to a multiple of 4 bytes. Source: `Documentation/driver-api/early-userspace/
    buffer-format.rst` in the kernel's source.
    """
    packed = bytearray()
    for number, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], start=1):
        name = entry.path.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, 2 x device, 2 x device, name's size, check
        fields = (number, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
        packed += b"070701" + b"".join(b"%08x" % field for field in fields) + name
        packed += bytes(-len(packed) % 4) + entry.content
        packed += bytes(-len(packed) % 4)
    return bytes(packed)
