"""An agent of one's own in another process: for tests, benchmarks and notebooks."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from time import monotonic, sleep

START_S = 60.0
"""How long a process may take until it listens."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class AgentProcess:
    """A process that listens at `address`."""

    process: subprocess.Popen[bytes]
    address: str
    epoch: int


@contextmanager
def agent_process(*options: str, prefix: tuple[str, ...] = ()) -> Iterator[AgentProcess]:
    """Yield a `btb agent` that listens; it is killed in the end, if it hasn't ended.

    Parameters
    ----------
    options
        Of `btb agent`. Without `--listen` it takes any free port on loopback.
    prefix
        A command to run it under, as `ip netns exec NAME`.

    Raises
    ------
    RuntimeError
        If it ends, or doesn't listen in time; the message has what it said.
    """
    if "--listen" not in options:
        options = ("--listen", "127.0.0.1:0", *options)
    main = "from btb.cli import main; main()"
    with NamedTemporaryFile() as where, NamedTemporaryFile() as said:
        command = [*prefix, sys.executable, "-c", main, "agent", *options, "--json", where.name]
        process = subprocess.Popen(command, stderr=said)  # noqa: S603
        try:
            until_s = monotonic() + START_S
            while not (found := _read(where.name)):
                if process.poll() is not None or monotonic() > until_s:
                    words = os.pread(said.fileno(), 100_000, 0).decode(errors="replace")
                    raise RuntimeError(f"btb agent doesn't listen; it said: {words}")
                sleep(POLL_S)
            yield AgentProcess(process, str(found["address"]), int(found["epoch"]))
        finally:
            process.kill()
            process.wait()


def _read(path: str) -> dict[str, int | str]:
    """Return what an agent says of itself; empty until it has."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not text.endswith("}\n"):
        return {}
    found: dict[str, int | str] = json.loads(text)
    return found
