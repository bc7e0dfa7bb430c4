"""`btb serve`: forecasts and routing decisions over REST."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from btb.config import Config, fill, read_config


def serve(
    model: Annotated[
        str | None, typer.Option(help="Built-in name, checkpoint, or models:/NAME@alias.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="What decides: see GET /v1/policies.")] = None,
    guard: Annotated[
        str | None, typer.Option(metavar="MODE", help="Watch the policy: off, observe or enforce.")
    ] = None,
    setup: Annotated[str | None, typer.Option(help="Model and GPUs of a replica.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes any that is free.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings in TOML.")] = None,
    log_dir: Annotated[Path | None, typer.Option(help="Where arrivals are logged.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="Secret that requests need.")] = None,
) -> None:
    """Serve forecasts and routing decisions over REST, until Ctrl-C.

    What is given here goes before what is in the file; without either: the
    river model, the btb policy, 70b_h100x4, 127.0.0.1:8017 and no log. Other
    addresses than loopback need a token. /docs of the service shows the API.

    --guard enforce, the default, holds a twentieth of the prefixes out from
    the policy, and stops it where TTFT is not better for it; observe asks it
    and moves nothing. A decision that fails is replaced in any mode.

    For example:

    btb serve

    btb serve --log-dir log --policy least_load

    btb serve --config btb.toml --host 0.0.0.0 --token-file token
    """
    # Imported late: these take a second, and `btb serve --help` needs none of them.
    from btb.packages import check_packages
    from btb.service.running import address, bind, listen, make_service, read_token

    check_packages()
    given = read_config(config) if config is not None else Config()
    options = {
        "model": model,
        "policy": policy,
        "setup": setup,
        "host": host,
        "port": port,
        "guard": guard,
        "log_dir": None if log_dir is None else str(log_dir),
        "token_file": None if token_file is None else str(token_file),
    }
    settings = over(given, options)
    token = read_token(settings.server)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    service = make_service(settings)
    with bind(settings.server) as bound:
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(f"btb serves on {address(bound)} (API: {address(bound)}/docs)")
        kept = f"logged in {settings.log.dir}" if settings.log.dir else "not logged"
        console.print(
            f"model {settings.model}, policy {settings.policy} (guard: {settings.guard.mode}), "
            f"setup {settings.setup}; "
            f"arrivals are {kept}"
        )
        listen(service, token, bound, settings.limits)


def over(config: Config, given: Mapping[str, object]) -> Config:
    """Return `config` with what was given on the command line in its place, checked alike."""
    asked = {name: value for name, value in given.items() if value is not None}
    server = {name: asked.pop(name) for name in ("host", "port", "token_file") if name in asked}
    log = {"dir": asked.pop("log_dir")} if "log_dir" in asked else {}
    guard = {"mode": asked.pop("guard")} if "guard" in asked else {}
    sections = {"server": server, "log": log, "guard": guard}
    return fill(config, {**asked, **sections}, where="command line: ")
