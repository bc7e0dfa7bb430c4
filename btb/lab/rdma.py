"""A throwaway machine with two soft-RoCE devices, and one command that runs in it."""

import hashlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from btb.errors import UserError
from btb.lab import debian, guest, initramfs, kernel, qemu

BUSYBOX = Path("/bin/busybox")

KVM_START_LIMIT_S = 10.0
"""A stock kernel starts in under 2 s; under nested virtualisation it may hang without a word."""

TIMED_OUT, NO_STATUS = 124, 125
"""Exit statuses of our own, as those of timeout(1): killed, and ended without a status."""


def run(
    command: Sequence[str],
    *,
    limit_s: float,
    accel: str,
    install: bool,
    memory_mib: int,
    say: Callable[[str], None],
) -> int:
    """Run `command` in the lab, in the folder one is in; return its exit status.

    `say` gets a line about each step.

    Raises
    ------
    UserError
        If the lab can't be built here; the message says why.
    """
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    tried = qemu.accelerators(accel, kvm=Path("/dev/kvm"), cpuinfo=cpuinfo)
    debian.require(install=install)
    image = prepare(cache_folder(), say)
    # As Ctrl-C does, this takes the machine and its scratch folder along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="btb-lab-") as scratch:
        script = Path(scratch, "command")
        script.write_text(guest.script(command, Path.cwd(), os.environ), encoding="utf-8")
        machine = qemu.Machine(
            kernel=image / "vmlinux",
            initrd=image / "initrd",
            script=script,
            status=Path(scratch, "status"),
            memory_mib=memory_mib,
            cpus=min(2, os.cpu_count() or 1),
        )
        return _try_each(machine, tried, limit_s, say)


def _try_each(
    machine: qemu.Machine, tried: Sequence[str], limit_s: float, say: Callable[[str], None]
) -> int:
    for accelerator in tried:
        say(f"booting under {accelerator}, for at most {limit_s:g} s")
        sys.stdout.flush()
        start_limit_s = KVM_START_LIMIT_S if accelerator == "kvm" else limit_s
        ended = qemu.boot(machine, accelerator, start_limit_s=start_limit_s, limit_s=limit_s)
        if ended.code is not None:
            say(f"the command ended with status {ended.code}, {ended.seconds:.1f} s after power-on")
            return ended.code
        if not ended.started:
            say(f"nothing runs under {accelerator} after {ended.seconds:.1f} s")
            continue
        if ended.timed_out:
            say(f"killed after {limit_s:g} s; --timeout sets another limit")
            return TIMED_OUT
        say(f"the machine died, and the command has no status; it said:\n{ended.kernel_says}")
        return NO_STATUS
    raise UserError(f"no machine boots here: tried {' and '.join(tried)}")


def cache_folder() -> Path:
    """Return where kernels are kept, in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "btb" / "lab"


def prepare(cache: Path, say: Callable[[str], None]) -> Path:
    """Return a folder with `vmlinux` and `initrd`, made before or made now.

    Its name has the kernel's and a digest of all else that goes in, so what is old isn't used.
    """
    package = kernel.kernel_package()
    busybox = BUSYBOX.read_bytes()
    parts = (guest.INIT.encode(), " ".join(guest.MODULES).encode(), busybox)
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
    made = cache / f"{package.removeprefix('linux-image-')}-{digest}"
    if made.is_dir():
        return made
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        say(f"downloading and unpacking {package}, about 70 MB (once)")
        unpacked = kernel.unpack(kernel.fetch(package, Path(folder)), guest.MODULES)
        entries = initramfs.contents(busybox, unpacked.modules, guest.INIT)
        ready = Path(folder, "ready")
        ready.mkdir()
        (ready / "vmlinux").write_bytes(unpacked.image)
        (ready / "initrd").write_bytes(initramfs.archive(entries))
        if not made.is_dir():
            shutil.move(ready, made)
    return made
