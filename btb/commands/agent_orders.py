"""What a person can have a running agent do: `btb agent list`, `copy` and so on."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from errno import errorcode
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from btb.commands.options import JsonTo
from btb.commands.output import write_json
from btb.errors import ConfigError, UserError
from btb.token_file import read_token_file

if TYPE_CHECKING:
    from replication.control.messages import Listing
    from replication.control.remote import AgentClient
    from replication.events import Events
    from replication.result import Result

T = TypeVar("T")
Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Where it listens.")]
Token = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="Secret that agents share.")
]
Tenant = Annotated[str, typer.Option(metavar="NAME", help="Whose prefix it is.")]
Prefix = Annotated[int, typer.Option(metavar="HASH", help="Its last block, as `list` shows.")]
Found = tuple[tuple[int, ...], int]
PATIENCE_S = 1.0
"""How long to look for an agent that isn't there."""
FOLLOW_S = 25.0
"""How long to wait for news before asking again."""


def listing(agent: Agent, token_file: Token = None, json_to: JsonTo = None) -> None:
    """Show what an agent has: slots, leases, tenants, and prefixes by their last block."""
    from msgspec import to_builtins

    from replication.prefixes import Prefixes

    async def ask(client: "AgentClient") -> tuple["Listing", "Events"]:
        return await client.list(), await client.events(-1, 0)

    found, snapshot = _ask(agent, token_file, ask)
    there = to_builtins(found)
    there["prefixes"] = [
        {"tenant": tenant, "prefix": chain[-1], "blocks": len(chain)}
        for tenant, chain in Prefixes(snapshot).whole()
    ]
    if not write_json(json_to, there):
        _show(there)


def copy(
    target: Agent,
    source: Annotated[
        list[str], typer.Option(metavar="AGENT", help="Who has it; may be given several times.")
    ],
    prefix: Prefix,
    tenant: Tenant = "default",
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, max=3600, help="Give up after this.")
    ] = 60.0,
    token_file: Token = None,
    json_to: JsonTo = None,
) -> None:
    """Have AGENT bring a prefix from other agents; exit with 1 if it didn't."""
    from replication.plan import Move

    chain, block_bytes = _find(source, token_file, tenant, prefix)
    size_bytes = block_bytes * len(chain)
    move = Move(tenant, chain, tuple(source), target, size_bytes, deadline, 1.0, "by hand")
    (result,) = _ask(target, token_file, lambda client: client.copy([move], {}, now_s=0.0))
    if not write_json(json_to, _plain(result)):
        typer.echo(_sentence(result))
    if not result.ok:
        raise typer.Exit(1)


def cancel(
    agent: Agent, prefix: Prefix, tenant: Tenant = "default", token_file: Token = None
) -> None:
    """Call off an agent's copies of a prefix."""
    count = _ask(agent, token_file, lambda client: client.cancel(tenant, prefix))
    typer.echo(f"{count} copies called off")


def drop(
    agent: Agent, prefix: Prefix, tenant: Tenant = "default", token_file: Token = None
) -> None:
    """Have an agent give up a prefix, but for blocks that somebody leases.

    Blocks that other prefixes share with it go too.
    """
    chain, _ = _find([agent], token_file, tenant, prefix)
    count = _ask(agent, token_file, lambda client: client.drop(tenant, chain))
    typer.echo(f"{count} of {len(chain)} blocks given up")


def fill(
    agent: Agent,
    blocks: Annotated[
        int, typer.Option(metavar="N", min=1, max=65_536, help="Length of the prefix.")
    ] = 8,
    tenant: Tenant = "default",
    seed: Annotated[int, typer.Option(metavar="N", help="Gives the hashes and the bytes.")] = 0,
    token_file: Token = None,
) -> None:
    """Put a prefix of random bytes into an agent's pool, to try copies out.

    It is no KV of any model. The agent has to be started with --allow-fill.
    """
    from btb.traces.hashing import chained, root

    chain = chained(range(blocks), root(0, tenant=tenant, scope=f"fill {seed}"))
    count = _ask(agent, token_file, lambda client: client.fill(tenant, chain, seed))
    typer.echo(f"{count} blocks of random bytes made up; the prefix is {chain[-1]}")


def events(
    agent: Agent,
    epoch: Annotated[int, typer.Option(metavar="N", help="Of the numbers; -1 for whichever.")] = -1,
    since: Annotated[int, typer.Option(metavar="N", help="First number to be told.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    token_file: Token = None,
) -> None:
    """Print an agent's residency events, a line of JSON each batch.

    What can't be told any more, or is of another epoch, is a snapshot: a
    clearing, and all that is resident.
    """
    from msgspec import json, structs

    async def tell(client: "AgentClient") -> None:
        at, number = epoch, since
        while True:
            found = await client.events(at, number, FOLLOW_S if follow else 0.0)
            for count, batch in found.batches:
                head = {"epoch": found.epoch, "number": count, "snapshot": found.snapshot}
                typer.echo(json.encode({**head, **structs.asdict(batch)}).decode())
            caught_up = (found.epoch, found.following) == (at, number) or found.snapshot
            at, number = found.epoch, found.following
            if caught_up and not follow:
                return

    _ask(agent, token_file, tell)


def _ask(agent: str, token_file: Path | None, ask: "Callable[[AgentClient], Awaitable[T]]") -> T:
    """Return what an agent answers; errors become one line for whoever asked."""
    from replication.control.address import Address
    from replication.control.remote import AgentClient
    from replication.errors import ReplicationError

    try:
        address = Address.parse(agent)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    token = b"" if token_file is None else read_token_file(str(token_file)).encode()

    async def run() -> T:
        client = AgentClient(address, token, PATIENCE_S)
        try:
            return await ask(client)
        finally:
            client.close()

    try:
        return asyncio.run(run())
    except ReplicationError as failed:
        raise UserError(f"agent {agent}: {type(failed).__name__}: {failed}") from failed


def _find(agents: Sequence[str], token_file: Path | None, tenant: str, prefix: int) -> "Found":
    """Return the blocks of a prefix, and the bytes of each, from the first agent that has it."""
    from replication.prefixes import Prefixes

    async def ask(client: "AgentClient") -> "Found":
        snapshot = await client.events(-1, 0)
        return Prefixes(snapshot).chain(tenant, prefix), (await client.list()).block_bytes

    for agent in agents[:-1]:
        with suppress(UserError):
            return _ask(agent, token_file, ask)
    return _ask(agents[-1], token_file, ask)


def _show(there: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    slots = ", ".join(f"{count} {state}" for state, count in there["slots"].items())
    console.print(f"{there['name']}, epoch {there['epoch']}", markup=False)
    console.print(f"slots: {slots} of {there['block_bytes']:,} bytes")
    console.print(f"{there['leases']} leases, {there['copies']} copies under way")
    for words in there["transport"]:
        console.print(words, markup=False)
    if there["tenants"]:
        console.print(_table(there["tenants"], ("tenant", "blocks", "copied", "used")))
    if there["prefixes"]:
        console.print(_table(there["prefixes"], ("tenant", "prefix", "blocks")))


def _table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        table.add_column(name, justify="left" if name == "tenant" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(str(row[name])) for name in columns))
    return table


def _plain(result: "Result") -> dict[str, object]:
    return {
        "ok": result.ok,
        "moved_bytes": result.moved_bytes,
        "wasted_bytes": result.wasted_bytes,
        "took_s": result.took_s,
        "path": result.path,
        "retries": result.retries,
        "error": None if result.ok else _words(result),
    }


def _sentence(result: "Result") -> str:
    if not result.ok:
        return f"not copied: {_words(result)}"
    if not result.path:
        return "it is there already"
    moved = f"{result.moved_bytes:,} bytes in {1000 * result.took_s:.1f} ms"
    return f"copied {moved}, {result.path}, after {result.retries} retries"


def _words(result: "Result") -> str:
    errno = getattr(result.error, "errno", None)
    said = f"{type(result.error).__name__}: {result.error}"
    return said if errno is None else f"{said} ({errorcode.get(errno, errno)})"
