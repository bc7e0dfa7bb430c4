"""`btb audit`: say whether a trace has bursts, and whether btb would pay there."""

from typing import Annotated

import typer
from rich.console import Console

from btb.commands.audit_tables import print_audit
from btb.commands.options import BlockTokens, Format, JsonTo, MaxBadShare, StartSpread, Traces
from btb.commands.output import counting, write_json
from btb.errors import ConfigError
from btb.traces import ReaderOptions, open_windows
from btb.traces.audit import DEPTHS_TOKENS, WINDOWS_S
from btb.traces.audit import audit as audit_traces

DEPTHS = ",".join(map(str, DEPTHS_TOKENS))
WINDOWS = ",".join(map("{:g}".format, WINDOWS_S))


def audit(
    traces: Traces,
    depths: Annotated[str, typer.Option(help="Prefix depths in tokens, with commas.")] = DEPTHS,
    windows: Annotated[
        str, typer.Option(help="Sliding windows in seconds, with commas.")
    ] = WINDOWS,
    json_to: JsonTo = None,
    fmt: Format = None,
    max_bad_share: MaxBadShare = 0.01,
    block_tokens: BlockTokens = None,
    start_spread: StartSpread = 3600.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Draws those starts.")] = 0,
) -> None:
    """Count requests that share a prefix, and say whether btb would pay.

    For each depth: the largest number of requests on one prefix within a
    sliding window, how often there were 8 or 20 of them, and whether two
    requests within 10 s foretell at least 4 more in the next 30 s (cold: the
    prefix had none in the 60 s before). Then the share of input tokens that
    an earlier request had already, and one sentence on what it means.

    A depth is rounded up to whole blocks. A folder's windows are summed up,
    and nothing is carried from one to the next. Where the trace's clock ticks
    in steps, nothing is said of shorter windows. --json holds a list with one
    object a TRACE.

    For example:

    btb audit requests.jsonl

    btb audit trace.jsonl.zst --depths 2048,8192 --windows 10,60

    btb audit windows/ --json -
    """
    depths_tokens = [int(depth) for depth in _numbers("--depths", depths, whole=True)]
    windows_s = _numbers("--windows", windows)
    options = ReaderOptions(
        max_bad_share=max_bad_share,
        block_tokens=block_tokens,
        start_spread_s=start_spread,
        seed=seed,
    )
    found = []
    for path in traces:
        read = open_windows([path], fmt=fmt, options=options)
        with counting(f"reading {path.name}") as on_rows:
            name = read[0].name if len(read) == 1 else path.name
            found.append(
                audit_traces(
                    name, read, depths_tokens=depths_tokens, windows_s=windows_s, on_rows=on_rows
                )
            )
    if write_json(json_to, [one.as_json() for one in found]):
        return
    for one in found:
        print_audit(one, Console())


def _numbers(option: str, text: str, *, whole: bool = False) -> list[float]:
    try:
        return [int(one) if whole else float(one) for one in text.split(",")]
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(f"{option} takes {kind} with commas between, got {text!r}") from None
