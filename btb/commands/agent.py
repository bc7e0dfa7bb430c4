"""`btb agent`: a replica's end of replication, and what a person can have it do."""

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from btb.commands.agent_orders import cancel, copy, drop, events, fill, listing
from btb.commands.options import JsonTo
from btb.commands.output import write_json
from btb.errors import ConfigError, UserError
from btb.token_file import MIN_TOKEN, read_token_file

if TYPE_CHECKING:
    from replication.agent import Agent
    from replication.control.address import Address
    from replication.layout import Layout
    from replication.result import Result

SUBCOMMANDS = {
    "list": listing,
    "copy": copy,
    "cancel": cancel,
    "drop": drop,
    "events": events,
    "fill": fill,
}
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104
NO_TOKEN = b"none"
"""What transports, which need some token, are given where others than this machine can't come."""


def agent(
    context: typer.Context,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="HOST:PORT, or unix:PATH. Port 0 is any.")
    ] = "127.0.0.1:8018",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Secret that all agents share.")
    ] = None,
    transport: Annotated[
        str, typer.Option(metavar="NAME", help="auto, shm, verbs or tcp.")
    ] = "auto",
    slots: Annotated[
        int, typer.Option(metavar="N", min=1, help="Blocks that the pool has room for.")
    ] = 64,
    setup: Annotated[
        str, typer.Option(metavar="SETUP", help="Model and GPUs that give the size of a block.")
    ] = "70b_h100x4",
    block_tokens: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens of a block.")] = 16,
    layers: Annotated[
        int, typer.Option(metavar="N", min=0, help="Layers of a block, in place of a setup's.")
    ] = 0,
    layer_bytes: Annotated[
        int, typer.Option(metavar="N", min=0, help="Bytes of a block in each of those layers.")
    ] = 0,
    lease: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="Most time for one try at a copy.")
    ] = 30.0,
    allow_fill: Annotated[
        bool, typer.Option("--allow-fill", help="Let `btb agent fill` make KV up, for trying out.")
    ] = False,
    metrics_port: Annotated[
        int,
        typer.Option(metavar="PORT", min=0, max=65535, help="Prometheus, on 127.0.0.1; 0: none."),
    ] = 0,
    json_to: JsonTo = None,
) -> None:
    """Hold a replica's KV blocks in host memory until SIGTERM or Ctrl-C.

    Others lease blocks here and read them; this agent copies theirs when it is
    told to. No engine writes KV into it yet: what is in it was copied, or made
    up by `btb agent fill`. Addresses other than loopback need a token; KV and
    orders are not encrypted on their way.

    For example, in two shells and a third:

    btb agent --listen 127.0.0.1:8018 --allow-fill

    btb agent --listen 127.0.0.1:8019

    btb agent fill 127.0.0.1:8018 --blocks 8

    btb agent list 127.0.0.1:8018

    btb agent copy 127.0.0.1:8019 --source 127.0.0.1:8018 --prefix HASH
    """
    if context.invoked_subcommand is not None:
        return
    # Imported late, as in all commands that do more than say how they are used.
    from btb.agent_metrics import AgentMetrics
    from replication.control.address import Address

    try:
        address = Address.parse(listen)
    except ValueError as error:
        raise ConfigError(f"--listen: {error}") from error
    if address.host in WILDCARDS:
        raise ConfigError(f"--listen: {listen}: give the address that other agents reach this at")
    if token_file is None and not address.local:
        raise ConfigError(
            f"--listen: {listen} can be reached from elsewhere: give --token-file, a file with a "
            f"secret of {MIN_TOKEN} characters or more, or listen on 127.0.0.1"
        )
    token = b"" if token_file is None else read_token_file(str(token_file)).encode()
    layout = _layout(setup, slots, block_tokens, layers, layer_bytes)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    async def run() -> None:
        metrics = AgentMetrics()
        made = await _start(
            address,
            token,
            layout,
            transport,
            block_tokens,
            lease_s=lease,
            trial=allow_fill,
            on_result=metrics.count,
        )
        try:
            if metrics_port:
                metrics.serve(metrics_port, made)
            await _until_told(made, json_to)
        finally:
            await made.aclose()

    asyncio.run(run())


async def _start(
    address: "Address",
    token: bytes,
    layout: "Layout",
    kind: str,
    block_tokens: int,
    *,
    lease_s: float,
    trial: bool,
    on_result: "Callable[[Result], None]",
) -> "Agent":
    from replication.agent import Agent, new_epoch
    from replication.errors import TransportError
    from replication.transports.choice import AutoTransport

    epoch = new_epoch()
    host = address.host or "127.0.0.1"
    try:
        ways = await AutoTransport.start(token or NO_TOKEN, kind=kind, host=host, epoch=epoch)
        try:
            memories = [ways.allocate(layout.region_bytes(rank)) for rank in layout.ranks]
            return Agent(
                address,
                token,
                layout,
                memories,
                ways,
                epoch=epoch,
                block_tokens=block_tokens,
                lease_s=lease_s,
                trial=trial,
                on_result=on_result,
            )
        except BaseException:
            await ways.aclose()
            raise
    except (TransportError, ValueError) as error:
        raise UserError(f"the agent can't start: {error}") from error


async def _until_told(made: "Agent", json_to: Path | None) -> None:
    """Say where the agent is, and wait for a signal."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    here = made.listing()
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    layout = made.pool.layout
    console.print(f"btb agent listens on {made.address}, epoch {here.epoch}", markup=False)
    console.print(
        f"{layout.slots} slots of {here.block_bytes / 2**20:.3g} MiB in host memory, "
        f"on {len(layout.ranks)} ranks"
    )
    for words in here.transport:
        console.print(words, markup=False)
    write_json(
        json_to,
        {
            "address": str(made.address),
            "epoch": here.epoch,
            "slots": layout.slots,
            "block_bytes": here.block_bytes,
            "transport": list(here.transport),
        },
    )
    await stop.wait()
    console.print("btb agent stops")


def _layout(setup: str, slots: int, block_tokens: int, layers: int, layer_bytes: int) -> "Layout":
    """Return how the pool is cut: as a setup's model and ranks say, or in plain layers."""
    from btb.simulation.setups import SETUPS
    from replication.layout import Layout

    if layers or layer_bytes:
        if not (layers and layer_bytes):
            raise ConfigError("--layers and --layer-bytes need each other")
        return Layout(slots, ((layer_bytes,) * layers,))
    if setup not in SETUPS:
        raise ConfigError(f"--setup: no setup is called {setup!r}; known are {', '.join(SETUPS)}")
    chosen = SETUPS[setup]
    parts = chosen.gpus_per_replica * chosen.model.layers
    size_bytes = round(chosen.kv_token_bytes * block_tokens)
    if size_bytes % parts:
        raise ConfigError(f"--setup: the KV of {setup} can't be split evenly over its ranks")
    return Layout(slots, ((size_bytes // parts,) * chosen.model.layers,) * chosen.gpus_per_replica)
