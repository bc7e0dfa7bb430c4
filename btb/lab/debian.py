"""The Debian packages that a lab is made of: which are missing, and how they are installed."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from btb.errors import UserError

NEEDED = {
    "qemu-system-x86": "the virtual machine",
    "busybox-static": "what runs in it before this machine's files are there",
    "iproute2": "`rdma link add`, to make the devices",
    "ibverbs-providers": "the verbs library's driver for soft-RoCE",
    "python3-pyverbs": "verbs from Python 3.11",
}
"""What has to be installed, and what for. The kernel is only unpacked, see `kernel.py`."""

PYVERBS = Path("/usr/lib/python3/dist-packages/pyverbs")
"""Where Debian's python3-pyverbs puts the package."""


def missing(installed: str) -> list[str]:
    r"""Return the needed packages that aren't in what `dpkg-query` printed.

    Examples
    --------
    >>> missing("busybox-static ii \nqemu-system-x86 rc \niproute2 ii \n")
    ['qemu-system-x86', 'ibverbs-providers', 'python3-pyverbs']
    """
    there = set(re.findall(r"^(\S+) ii", installed, re.MULTILINE))
    return [package for package in NEEDED if package not in there]


def require(*, install: bool) -> None:
    """Return once everything needed is installed; install what isn't if `install`.

    Raises
    ------
    UserError
        If something is missing and can't be installed or wasn't to be.
    """
    lacking = missing(_installed())
    if not lacking:
        return
    if not install:
        raise UserError(refusal(lacking))
    if os.geteuid() != 0:
        raise UserError(f"--install needs root; {refusal(lacking)}")
    _apt_get("update")
    if _apt_get("install", "--yes", "--no-install-recommends", *lacking):
        raise UserError(f"apt-get can't install {', '.join(lacking)}; its reason is above")


def refusal(lacking: Sequence[str]) -> str:
    """Return which packages are lacking, what each is for, and how to get them."""
    named = "; ".join(f"{package} ({NEEDED[package]})" for package in lacking)
    return (
        f"the lab needs Debian packages that aren't installed: {named}. "
        f"Run it once as root with --install, or: apt-get install {' '.join(lacking)}"
    )


def _apt_get(*arguments: str) -> int:
    """Return apt-get's exit status. A mirror that says nothing is given up, not waited for."""
    command = ["apt-get", "--quiet", "-o", "Acquire::http::Timeout=20", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, check=False, stdout=2).returncode  # noqa: S603


def _installed() -> str:
    command = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Abbrev}\n", *NEEDED]
    try:
        # dpkg-query exits with 1 where it doesn't know a name; those are missing, then.
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    except FileNotFoundError as error:
        raise UserError("the lab runs on Debian only: there is no dpkg-query here") from error
