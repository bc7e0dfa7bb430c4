"""`btb promote`: make a challenger the champion, if it has shown itself to be better."""

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from btb import registry, tracking
from btb.commands.options import JsonTo
from btb.commands.output import write_json
from btb.errors import ConfigError
from btb.registry import CHALLENGER, SHADOW, TRAINED, Evidence, Registered
from btb.training import CHAMPION


def promote(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is registered as.")],
    version: Annotated[
        str, typer.Option(metavar="N", help="Which one, in place of the challenger.")
    ] = CHALLENGER,
    anyway: Annotated[bool, typer.Option("--anyway", help="Whatever the evidence says.")] = False,
    json_to: JsonTo = None,
) -> None:
    """Make the challenger the champion, if it is better by more than chance.

    The evidence is of a service that had it in its shadow or, if there is
    none, of its training; against the present champion, by Poisson deviance
    at 15 s. Otherwise nothing changes, the reason is said, and the exit
    status is 1. A running btb serve --model models:/NAME@champion takes the
    new one by itself.

    For example:

    btb promote chat

    btb promote chat --version 3 --anyway
    """
    registry.check_name(name)
    mlflow = tracking.client()
    one = registry.find(mlflow, name, version)
    if one is None:
        known = ", ".join(known.version for known in registry.list_versions(mlflow, name))
        what = "no challenger" if version == CHALLENGER else f"no version {version}"
        raise ConfigError(f"{name} has {what}; known versions: {known or 'none'}")
    champion = registry.find(mlflow, name, CHAMPION)
    promoted, reason = _judge(one, champion, anyway)
    if promoted:
        registry.crown(mlflow, one)
    content = {
        "spec": one.spec,
        "promoted": promoted,
        "reason": reason,
        "champion": one.spec if promoted or champion is None else champion.spec,
    }
    if not write_json(json_to, content):
        outcome = f"now {one.champion_spec}" if promoted else "not promoted"
        Console().print(f"{escape(one.spec)} is {outcome}: {escape(reason)}.", highlight=False)
    if not promoted:
        raise typer.Exit(1)


def _judge(one: Registered, champion: Registered | None, anyway: bool) -> tuple[bool, str]:
    """Return whether `one` is to be champion in place of `champion`, and why."""
    if champion is None:
        return True, "there was none"
    if champion.version == one.version:
        return False, "it is the champion"
    told = [
        (evidence, where)
        for tag, where in ((SHADOW, "in the shadow"), (TRAINED, "in training"))
        for evidence in [one.evidence.get(tag)]
        if evidence is not None and evidence.against == champion.version
    ]
    if anyway:
        return True, f"by hand; {_words(*told[0])}" if told else "by hand, without evidence"
    if not told:
        return False, (
            f"it was never held against {champion.spec}; a service that has it in its shadow "
            "would do that, and --anyway promotes it all the same"
        )
    evidence, where = told[0]
    return evidence.better, _words(evidence, where)


def _words(evidence: Evidence, where: str) -> str:
    return f"{where}, against version {evidence.against}: {evidence.reason}"
