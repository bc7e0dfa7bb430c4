"""`btb models`: what is registered, who is champion, and how the others did against it."""

from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from btb import registry, tracking
from btb.commands.options import JsonTo
from btb.commands.output import write_json


def models(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Of these only; else all that btb registered.")
    ] = "",
    json_to: JsonTo = None,
) -> None:
    """List the registered models: versions, aliases, and evidence.

    Evidence is how a version did against the one that was champion then: in
    the training that made it, and in the shadow of a service. models:/NAME/1
    and models:/NAME@champion can be given as --model to other commands.

    For example:

    btb models

    btb models chat --json -
    """
    if name:
        registry.check_name(name)
    found = registry.list_versions(tracking.client(), name)
    if write_json(json_to, [as_json(one) for one in found]):
        return
    console = Console()
    if not found:
        console.print(f"No model is registered at {escape(tracking.tracking_uri())}.")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("model", "alias", "learner", "made", "traces"):
        table.add_column(column, no_wrap=True)
    for one in found:
        aliases = escape(", ".join(one.aliases))
        made = one.made.removesuffix("+00:00")
        table.add_row(escape(one.spec), aliases, escape(one.learner), made, one.traces[:12])
    console.print(table)
    for one in found:
        for tag, evidence in one.evidence.items():
            where = "in training" if tag == registry.TRAINED else "in the shadow"
            against = f"{one.name}/{one.version} against {evidence.against} {where}"
            console.print(f"{escape(against)}: {escape(evidence.reason)}.", highlight=False)


def as_json(one: registry.Registered) -> dict[str, Any]:
    """Return a version as plain JSON values."""
    return {
        "name": one.name,
        "version": one.version,
        "spec": one.spec,
        "aliases": list(one.aliases),
        "learner": one.learner,
        "made": one.made,
        "traces": one.traces,
        "evidence": {
            tag.removeprefix("btb."): {
                "against": told.against,
                "better": told.better,
                "reason": told.reason,
            }
            for tag, told in one.evidence.items()
        },
    }
