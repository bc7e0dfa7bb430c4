"""JSON where it was asked for, and a count of what is being read."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from btb.errors import ConfigError


def write_json(to: Path | None, content: object) -> bool:
    """Write `content` to the file `to`, if there is one; return whether that is stdout.

    Nothing else belongs on stdout then.

    Raises
    ------
    ConfigError
        If the file can't be written.
    """
    if to is None:
        return False
    text = json.dumps(content, indent=1, allow_nan=False)
    if str(to) == "-":
        typer.echo(text)
        return True
    try:
        to.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json: can't write {to}: {error.strerror}") from error
    return False


@contextmanager
def counting(description: str) -> Iterator[Callable[[int], None]]:
    """Show on stderr how many requests have been gone through; call what this gives with each."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}: {task.completed:,} requests"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task(description, total=None)
        yield lambda rows: progress.advance(task, rows)
