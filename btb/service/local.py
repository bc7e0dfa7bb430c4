"""A service of one's own, in this process or another: for tests, benchmarks and notebooks."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import IO

import httpx

from btb.service.app import make_app
from btb.service.service import Service

START_S = 120.0
"""How long a process may take until it is ready."""

POLL_S = 0.05


@asynccontextmanager
async def local_client(service: Service, token: str = "") -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of `service`, which has started and read its log, and stops in the end."""
    transport = httpx.ASGITransport(make_app(service, token))
    await service.start()
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8017"
        ) as client:
            while not service.ready:
                await asyncio.sleep(0)
            yield client
    finally:
        await service.stop()


def talk(
    service: Service,
    *steps: Callable[[httpx.AsyncClient], Awaitable[None]],
    replicas: str = "",
    token: str = "",
) -> None:
    """Start `service`, run `steps` with a client of it, one after the other, and stop it.

    `replicas` have names of one letter each, and are there before the first step.
    """

    async def run() -> None:
        async with local_client(service, token) as client:
            for name in replicas:
                service.parts.cluster.add(name)
            for step in steps:
                await step(client)

    asyncio.run(run())


@contextmanager
def serve_process(*options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Yield a `btb serve` process that is ready, and its URL; it is stopped in the end.

    Raises
    ------
    RuntimeError
        If it ends, or isn't ready in time; the message has what it said.
    """
    main = "from btb.cli import main; main()"
    command = [sys.executable, "-c", main, "serve", "--port", "0", *options]
    with TemporaryFile() as said:
        process = subprocess.Popen(command, stderr=said)  # noqa: S603
        try:
            yield process, _wait_until_ready(process, said)
        finally:
            process.terminate()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], said: IO[bytes]) -> str:
    """Return the URL on which `process` takes requests."""
    until_s = monotonic() + START_S
    while monotonic() < until_s and process.poll() is None:
        url = re.search(r"http://[^ ]+", _so_far(said))
        if url is not None and _is_ready(url.group()):
            return url.group()
        sleep(POLL_S)
    raise RuntimeError(f"btb serve did not become ready; it said: {_so_far(said)}")


def _so_far(said: IO[bytes]) -> str:
    """Return what has been written by now, without moving where the process writes."""
    return os.pread(said.fileno(), 100_000, 0).decode(errors="replace")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:  # not listening yet
        return False
