"""`btb lab`: a command in a throwaway machine that can do what this one can't."""

from typing import Annotated

import typer
from rich.console import Console

from btb.errors import ConfigError

KINDS = ("rdma",)


def lab(
    kind: Annotated[str, typer.Argument(metavar="rdma", help="Two soft-RoCE devices.")],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, with arguments.")
    ],
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Kill the machine after this time.")
    ] = 300.0,
    accel: Annotated[
        str, typer.Option(metavar="NAME", help="kvm, tcg, or auto: kvm, then tcg if it hangs.")
    ] = "auto",
    memory: Annotated[
        int, typer.Option(metavar="MIB", min=512, help="Memory of the machine.")
    ] = 2048,
    install: Annotated[
        bool, typer.Option("--install", help="Install missing Debian packages; needs root.")
    ] = False,
) -> None:
    """Run a command in a throwaway virtual machine that has RDMA devices.

    For Debian 12. Its kernel's soft-RoCE runs under QEMU: rxe0 and rxe1, with
    a cable between ve0 (10.77.0.1) and ve1 (10.77.0.2). The machine sees this
    one's files at their own places; what is written there is gone at the end.
    The exit status is the command's; 124 is a timeout.

    For example:

    btb lab rdma -- rdma link

    btb lab rdma -- .venv/bin/python -m pytest tests/test_verbs.py
    """
    if kind not in KINDS:
        raise ConfigError(f"no lab is called {kind!r}; known are {', '.join(KINDS)}")
    from btb.lab import rdma

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    code = rdma.run(
        command,
        limit_s=timeout,
        accel=accel,
        install=install,
        memory_mib=memory,
        say=lambda line: console.print(f"lab: {line}", markup=False),
    )
    raise typer.Exit(code)
