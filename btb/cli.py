"""The `btb` command. Each subcommand lives in `btb/commands/`, imported only when it is used."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from btb.errors import UserError

COMMANDS = {
    "agent": "Hold a replica's KV, and copy it between replicas.",
    "audit": "Say whether a trace has bursts, and whether btb would pay.",
    "compare": "Simulate policies side by side on the same arrivals.",
    "costs": "Show what computing a prefix costs against moving it.",
    "evaluate": "Hold a model's alarms against the bursts in a trace.",
    "generate": "Write a synthetic trace.",
    "lab": "Run a command in a throwaway machine that has RDMA.",
    "replay": "Feed a trace to a running service.",
    "serve": "Serve forecasts and routing decisions over REST.",
    "train": "Learn from a logged trace, and score what was learnt.",
}
"""Name and one line of help; `btb/commands/NAME.py` holds a function of the same name.

Where the file has `SUBCOMMANDS`, functions by name, the command has those too.
"""


class LazyCommands(TyperGroup):
    """Imports a subcommand when it is run, so that `btb --help` is quick."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return what `btb --help` shows of the command called `cmd_name`, or None."""
        if cmd_name not in COMMANDS:
            return None
        return _command(cmd_name, lambda: None, help=COMMANDS[cmd_name])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and remaining arguments of what is to be run."""
        if args[0] not in COMMANDS:
            return super().resolve_command(ctx, args)
        module = import_module(f"btb.commands.{args[0]}")
        below = getattr(module, "SUBCOMMANDS", {})
        return args[0], _command(args[0], getattr(module, args[0]), below), args[1:]


def _command(
    name: str,
    function: Callable[..., None],
    below: Mapping[str, Callable[..., None]] = {},
    **settings: Any,
) -> Any:
    made = typer.Typer(add_completion=False)
    if not below:
        made.command(name, **settings)(function)
        return typer.main.get_command(made)
    made.callback(invoke_without_command=True)(function)
    for sub, its in below.items():
        made.command(sub)(its)
    return typer.main.get_command(made)


app = typer.Typer(
    cls=LazyCommands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Forecast bursts of LLM requests that share a prefix, and copy its KV ahead of them.",
)


@app.callback()
def _root() -> None:
    """Look for a person's own `module:Class` in the folder they are in, too."""
    sys.path.append(str(Path.cwd()))


def main() -> None:
    """Run the command line; a UserError becomes one line on stderr and exit status 2."""
    try:
        app()
    except UserError as error:
        message = f"[bold red]error:[/] {escape(str(error))}"
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        sys.exit(130)
