"""Network namespaces joined by a switch, each with a link of its own that may be capped."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

QUEUE = "20ms"


def available() -> str:
    """Return why there can be no namespaces; empty if there can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    return f"{', '.join(missing)} of iproute2 is missing" if missing else ""


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _cap(namespace: str, device: str, mbit: int, burst: str) -> None:
    """Cap what goes out; within that, what is marked as bulk comes last, as on most links."""
    tc = ["ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", device]
    rate = ["tbf", "rate", f"{mbit}mbit", "burst", burst, "latency", QUEUE]
    subprocess.run([*tc, "root", "handle", "1:", *rate], check=True)
    subprocess.run([*tc, "parent", "1:1", "handle", "2:", "pfifo_fast"], check=True)


@contextmanager
def star(
    names: Sequence[str], mbit: int = 0, burst: str = "64kb"
) -> Iterator[dict[str, tuple[str, str]]]:
    """Give, by name, a namespace and its address. With `mbit` each link is capped, both ways.

    `burst` is what an idle link lets through at once; the less, the more it is like a real one,
    and the more it costs.
    """
    prefix = f"btb{os.getpid()}"
    switch = f"{prefix}-hub"
    made: list[str] = []
    try:
        _ip("netns", "add", switch)
        made.append(switch)
        _ip("-n", switch, "link", "add", "name", "hub0", "type", "bridge")
        _ip("-n", switch, "link", "set", "hub0", "up")
        found = {}
        for number, name in enumerate(names, start=1):
            inside, port, address = f"{prefix}{name}", f"p{number}", f"10.99.0.{number}"
            _ip("netns", "add", inside)
            made.append(inside)
            peer = ["peer", "name", port, "netns", switch]
            _ip("link", "add", "eth0", "netns", inside, "type", "veth", *peer)
            _ip("-n", inside, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", inside, "link", "set", "eth0", "up")
            _ip("-n", inside, "link", "set", "lo", "up")
            _ip("-n", switch, "link", "set", port, "master", "hub0")
            _ip("-n", switch, "link", "set", port, "up")
            if mbit:
                _cap(inside, "eth0", mbit, burst)
                _cap(switch, port, mbit, burst)
            found[name] = (inside, address)
        yield found
    finally:
        for namespace in made:
            subprocess.run(["ip", "netns", "del", namespace], check=False)
