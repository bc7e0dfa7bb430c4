"""`btb replay`: feed a trace to a running service, and compare its forecasts with what came."""

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from btb.commands.options import Format, JsonTo
from btb.commands.output import write_json
from btb.commands.replay_tables import result_of, show_result
from btb.errors import ConfigError

if TYPE_CHECKING:
    import httpx

    from btb.service.replay import Pace, Replay
    from btb.traces import Trace

TIMEOUT_S = 30.0


def replay(
    trace: Annotated[Path, typer.Argument(help="A trace that btb audit can read.")],
    to: Annotated[str, typer.Option("--to", metavar="URL", help="The service.")],
    speed: Annotated[float, typer.Option(help="Times as fast as the trace.")] = 1.0,
    rate: Annotated[
        float, typer.Option(help="Arrivals a second, evenly; 0 keeps the trace's times.")
    ] = 0.0,
    top: Annotated[int, typer.Option(min=1, help="Hottest prefixes to compare.")] = 10,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    fmt: Format = None,
    token_file: Annotated[Path | None, typer.Option(help="Secret of the service.")] = None,
    json_to: JsonTo = None,
) -> None:
    """Feed a trace to a running service, and compare its forecasts with what came.

    Arrivals keep the trace's times, divided by --speed, whatever the service
    answers: what is sent too late is shown as lag. They are sent as coming
    now, so horizons are real seconds. Exits with 1 if any was refused.

    For example:

    btb replay trace.jsonl --to http://127.0.0.1:8017 --speed 10

    btb replay trace.jsonl --to http://127.0.0.1:8017 --rate 500 --limit 30000 --json -
    """
    # Imported late: these take half a second, and `btb replay --help` needs none of them.
    import httpx

    from btb.service.replay import Pace
    from btb.traces import open_trace

    if not speed > 0 or rate < 0:
        raise ConfigError(f"--speed must be more than 0 and --rate not less, got {speed}, {rate}")
    if not to.startswith(("http://", "https://")):
        raise ConfigError(f"--to {to}: expected a URL like http://127.0.0.1:8017")
    found = open_trace(trace, fmt=fmt)
    pace = Pace(speed=speed, rate=rate, limit=limit, top=top)
    try:
        client = httpx.AsyncClient(
            base_url=to, timeout=TIMEOUT_S, headers=_authorization(token_file), trust_env=False
        )
    except httpx.InvalidURL as error:
        raise ConfigError(f"--to {to}: {error}") from error
    done = asyncio.run(_run(found, client, pace))
    result = result_of(done, found.name)
    if not write_json(json_to, result):
        show_result(result, Console())
    if done.tally.stopped:
        raise typer.Exit(130)
    if done.tally.errors:
        raise typer.Exit(1)


async def _run(trace: "Trace", client: "httpx.AsyncClient", pace: "Pace") -> "Replay":
    from btb.service.replay import Replay, Tally

    done = Replay(client, pace)
    loop = asyncio.get_running_loop()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    async with client:
        await _greet(client)
        loop.add_signal_handler(signal.SIGINT, done.stop)
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("sending")

            def watch(tally: Tally) -> None:
                lag_s = tally.lag_s[-1] if tally.lag_s else 0.0
                text = f"{tally.sent:,} sent, {tally.accepted:,} accepted"
                errors = f", {tally.errors.total():,} errors" if tally.errors else ""
                progress.update(task, description=f"{text}{errors}, lag {lag_s:.2f} s")

            try:
                await done.run(trace, watch)
            finally:
                loop.remove_signal_handler(signal.SIGINT)
    return done


async def _greet(client: "httpx.AsyncClient") -> None:
    """Return if there is a service that takes requests.

    Raises
    ------
    ConfigError
        If there is none, it isn't ready, or it wants another token.
    """
    import httpx

    url = str(client.base_url).rstrip("/")
    try:
        ready = await client.get("/readyz")
        allowed = await client.get("/v1/policies")
    except httpx.HTTPError as error:
        raise ConfigError(f"no service answers at {url}: {error}; start one: btb serve") from error
    if ready.status_code != 200:
        raise ConfigError(f"the service at {url} isn't ready: {ready.text[:200]}")
    if allowed.status_code == 401:
        raise ConfigError(f"the service at {url} wants another token: --token-file")
    if allowed.status_code != 200:
        raise ConfigError(f"what answers at {url} is no btb service: {allowed.status_code}")


def _authorization(token_file: Path | None) -> dict[str, str]:
    if token_file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {token_file.read_text(encoding='ascii').strip()}"}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"token file {token_file}: can't be read: {error}") from error
