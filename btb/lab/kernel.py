"""Debian's stock kernel, unpacked and never installed: its image, and the modules asked for."""

import gzip
import lzma
import re
import struct
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from btb.errors import UserError

META_PACKAGE = "linux-image-amd64"
"""Depends on the current kernel. The cloud flavour has no InfiniBand modules."""

MODULE_NAME = re.compile(r"\./lib/modules/[^/]+/kernel/.*?([^/]+)\.ko$")
SETUP_SECTORS, PAYLOAD_OFFSET = 0x1F1, 0x248
"""Where a bzImage says how long its setup code is, and where its payload lies: the x86 boot
protocol, `Documentation/arch/x86/boot.rst` in the kernel's source."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An ELF image that QEMU can enter directly, and modules in the order to load them."""

    image: bytes
    modules: Mapping[str, bytes]


def kernel_package() -> str:
    """Return the name of the package that holds Debian's current kernel.

    Raises
    ------
    UserError
        If apt doesn't know it.
    """
    command = ["apt-cache", "depends", META_PACKAGE]
    shown = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    found = re.search(r"Depends: (linux-image-\d\S*)", shown)
    if found is None:
        raise UserError(f"apt doesn't know {META_PACKAGE}; run apt-get update as root")
    return found[1]


def fetch(package: str, folder: Path) -> Path:
    """Download a package (about 70 MB) into `folder`, and return its file.

    Raises
    ------
    UserError
        If apt-get can't.
    """
    command = ["apt-get", "--quiet", "download", package]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    files = list(folder.glob("*.deb"))
    if done.returncode or not files:
        raise UserError(f"apt-get can't download {package}: {done.stderr.strip()}")
    return files[0]


def unpack(deb: Path, wanted: Sequence[str]) -> Kernel:
    """Take the image and the `wanted` modules, with what they depend on, out of a package.

    Raises
    ------
    UserError
        If the package lacks one of them.
    """
    image, modules = b"", dict[str, bytes]()
    with subprocess.Popen(  # noqa: S603
        ["dpkg-deb", "--fsys-tarfile", deb],  # noqa: S607
        stdout=subprocess.PIPE,
    ) as process:
        stream = cast(IO[bytes], process.stdout)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                module = MODULE_NAME.match(member.name)
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None and module:
                    modules[module[1].replace("-", "_")] = content.read()
                elif content is not None and member.name.startswith("./boot/vmlinuz-"):
                    image = content.read()
    order = load_order(modules, wanted)
    return Kernel(elf_image(image), {name: modules[name] for name in order})


def load_order(modules: Mapping[str, bytes], wanted: Sequence[str]) -> list[str]:
    r"""Return `wanted` and all that they depend on, each after what it needs.

    A module names what it depends on in its `.modinfo`; what is built into the kernel isn't named.

    Examples
    --------
    >>> load_order({"a": b"\0depends=b\0", "b": b"\0depends=c\0", "c": b"\0depends=\0"}, ["a"])
    ['c', 'b', 'a']

    Raises
    ------
    UserError
        If a module isn't there.
    """
    order: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        if name not in modules:
            raise UserError(f"the kernel package has no module {name}")
        depends = re.search(rb"\0depends=([^\0]*)", modules[name])
        for needed in depends[1].decode().split(",") if depends else ():
            if needed:
                add(needed.replace("-", "_"))
        order.append(name)

    for name in wanted:
        add(name)
    return order


def elf_image(vmlinuz: bytes) -> bytes:
    """Return the ELF image that a bzImage carries: unpacked here, it needn't be in the guest.

    Raises
    ------
    UserError
        If it is packed in a way that isn't known.
    """
    offset, length = struct.unpack_from("<II", vmlinuz, PAYLOAD_OFFSET)
    start = (vmlinuz[SETUP_SECTORS] + 1) * 512 + offset
    payload = vmlinuz[start : start + length]
    # The payload's last 4 bytes are its unpacked size, which a strict reader takes for damage.
    if payload.startswith(b"\xfd7zXZ\0"):
        image = lzma.LZMADecompressor().decompress(payload)
    elif payload.startswith(b"\x1f\x8b"):
        image = gzip.decompress(payload[:-4])
    else:
        raise UserError(f"the kernel is packed in a way that isn't known ({payload[:6].hex()})")
    if not image.startswith(b"\x7fELF"):
        raise UserError("the kernel package's image holds no ELF file")
    return image
