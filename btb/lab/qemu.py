"""QEMU around a guest: its command line, how it is started, watched and ended."""

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from btb.errors import UserError
from btb.lab.guest import ENDED, ROOT_TAG, STARTED

LOOK_AGAIN_S = 0.1
"""How often the guest's status is looked at. What it prints streams past without us."""

ACCELERATORS = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    "tcg": ("-accel", "tcg,thread=multi", "-cpu", "max"),
}
"""KVM runs the guest's instructions as they are; tcg emulates them, on any machine."""

KERNEL_LINE = (
    "console=ttyS1 quiet panic=-1 oops=panic nokaslr mitigations=off audit=0 "
    "random.trust_cpu=on cryptomgr.notests no_timer_check"
)
EMULATED_CLOCK = "tsc=unstable clocksource=hpet"
"""On a busy host, an emulated processor's cycle counter is calibrated wrongly, and time with it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What is booted: an ELF kernel, an initramfs, and a script in a folder of this machine."""

    kernel: Path
    initrd: Path
    script: Path
    status: Path
    memory_mib: int
    cpus: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a guest ended: `code` is the command's exit status, None if there was none.

    `kernel_says` are its kernel's last words.
    """

    code: int | None
    started: bool
    timed_out: bool
    seconds: float
    kernel_says: str


def accelerators(asked: str, *, kvm: Path, cpuinfo: str) -> list[str]:
    """Return what is tried, in order; "auto" tries KVM only where it may work.

    Examples
    --------
    A processor without virtualisation can't run a stock kernel under KVM, whatever /dev/kvm says:

    >>> accelerators("auto", kvm=Path("/dev/null"), cpuinfo="flags : fpu sse")
    ['tcg']
    >>> accelerators("auto", kvm=Path("/dev/null"), cpuinfo="flags : fpu vmx sse")
    ['kvm', 'tcg']

    Raises
    ------
    UserError
        If `asked` isn't known.
    """
    if asked in ACCELERATORS:
        return [asked]
    if asked != "auto":
        raise UserError(f"--accel: {asked!r} is none of auto, {', '.join(ACCELERATORS)}")
    if _may_use(kvm) and re.search(r"\b(vmx|svm)\b", cpuinfo):
        return ["kvm", "tcg"]
    return ["tcg"]


def command_line(machine: Machine, accelerator: str) -> list[str]:
    """Return QEMU's arguments: no network and no disk, this machine's files for reading only."""
    clock = EMULATED_CLOCK if accelerator == "tcg" else ""
    return [
        *("qemu-system-x86_64", "-M", "pc", *ACCELERATORS[accelerator]),
        *("-smp", str(machine.cpus), "-m", str(machine.memory_mib)),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none"),
        *("-kernel", str(machine.kernel), "-initrd", str(machine.initrd)),
        *("-append", f"{KERNEL_LINE} {clock} lab_script={machine.script}"),
        *("-serial", "stdio", "-serial", f"file:{machine.status}"),
        "-fsdev",
        "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
        *("-device", f"virtio-9p-pci,fsdev=root,mount_tag={ROOT_TAG}"),
    ]


def boot(machine: Machine, accelerator: str, *, start_limit_s: float, limit_s: float) -> Ended:
    """Run a guest to its end, its output on stdout; it is killed if it takes too long.

    `start_limit_s` is for its first process to run, `limit_s` for all of it. Whatever ends this
    function (Ctrl-C too), QEMU doesn't outlive it.
    """
    machine.status.write_text("", encoding="ascii")
    began_s = time.monotonic()
    # setpriv has the kernel kill QEMU if this process is killed and can't do it itself. A session
    # of its own keeps Ctrl-C away from QEMU, which would end without a word.
    process = subprocess.Popen(  # noqa: S603
        ["setpriv", "--pdeathsig", "KILL", *command_line(machine, accelerator)],  # noqa: S607
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while True:
            try:
                process.wait(LOOK_AGAIN_S)
            except subprocess.TimeoutExpired:
                late = not _started(machine) and time.monotonic() - began_s > start_limit_s
                if not late and time.monotonic() - began_s <= limit_s:
                    continue
            return _ended(machine, process.returncode is None, time.monotonic() - began_s)
    finally:
        process.kill()
        process.wait()


def exit_status(status: str) -> int | None:
    r"""Return the exit status that a guest reported, None if it reported none.

    Examples
    --------
    >>> exit_status("@started\n@ended 3\r\n")
    3
    """
    found = re.search(rf"^{ENDED} (\d+)\s*$", status, re.MULTILINE)
    return None if found is None else int(found[1])


def _ended(machine: Machine, timed_out: bool, seconds: float) -> Ended:
    status = _read(machine)
    said = "\n".join(line for line in status.splitlines() if not line.startswith("@"))
    return Ended(exit_status(status), _started(machine), timed_out, seconds, said[-1000:])


def _started(machine: Machine) -> bool:
    return STARTED in _read(machine)


def _read(machine: Machine) -> str:
    return machine.status.read_text(encoding="ascii", errors="replace")


def _may_use(device: Path) -> bool:
    try:
        with device.open("r+b", buffering=0):
            return True
    except OSError:
        return False
