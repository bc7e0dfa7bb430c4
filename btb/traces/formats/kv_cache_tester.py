"""Sessions of coding agents, from kv-cache-tester: one JSON object each, 64-token blocks.

A session knows its own time only, so each starts at a random time within `start_spread_s`, drawn
from `seed`. Sub-agents are nested, and count from their own beginning. The ids of a call stand in
`hash_ids`, or in the compact form of `keep` (leading ids taken from the call before) and `runs`.

Ids are local to a session (edition 8) or name content across sessions (edition 7, "global"). In
edition 7 the streaming and the other twin of one call stand side by side, so its calls are no
measure of load.
"""

from array import array
from collections.abc import Iterator, Sequence

from btb.traces.fields import BadField, block_ids, label, seconds, text, whole
from btb.traces.format import Format, Lay, Reading
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from btb.traces.report import ReadReport
from btb.traces.sessions import Call, Session, encoded, on_one_clock, start_s
from forecasting.arrival import Arrival

BLOCK_TOKENS = 64
TWINS = (
    "ids are shared across sessions, and the streaming and the other twin of a call stand side by "
    "side: do not take these calls for load"
)


class KvCacheTester(Format):
    """Reader of kv-cache-tester sessions; those of a folder are one trace."""

    name = "kv_cache_tester"
    joins = ".json"

    def matches(self, row: Row) -> bool:
        """Return whether `row` is a session."""
        return {"hash_id_scope", "requests"} <= row.keys()

    def reading(self, _: Source, head: Sequence[Row], options: ReaderOptions) -> Reading[Session]:
        """Return how to read it; the first session's block size holds for all."""
        given = head[0].get("block_size") if head else None
        usual = options.block_tokens or BLOCK_TOKENS
        block_tokens = given if isinstance(given, int) and given > 0 else usual
        is_global = bool(head) and head[0].get("hash_id_scope") == "global"

        def parse(row: Row) -> Session | None:
            return _session(row, block_tokens)

        return Reading(
            block_tokens,
            parser=lambda: parse,
            lay=_laid(options),
            notes=(TWINS,) if is_global else (),
        )


def _laid(options: ReaderOptions) -> Lay[Session]:
    def lay(sessions: Iterator[Session], report: ReadReport) -> Iterator[Arrival]:
        kept: dict[bytes, Session] = {}
        copies = 0
        for number, session in enumerate(sessions):
            key = session.fingerprint() if options.drop_copies else b"%d" % number
            copies += key in kept
            kept.setdefault(key, session)
        report.notes.append(
            f"{len(kept):,} sessions with no common clock: each starts at a random time within "
            f"{options.start_spread_s:g} s (seed {options.seed})"
        )
        if copies:
            report.notes.append(f"{copies:,} sessions left out: exact copies of another")
        ordered = list(kept.values())
        starts_s = [start_s(one.name, options.start_spread_s, options.seed) for one in ordered]
        yield from on_one_clock(ordered, starts_s)

    return lay


def _session(row: Row, block_tokens: int) -> Session | None:
    if whole(row, "block_size", block_tokens) != block_tokens:
        raise BadField("block_size", f"{block_tokens}, as in the first session")
    scope, name = text(row, "hash_id_scope"), text(row, "id")
    if scope not in {"local", "global"}:
        raise BadField("hash_id_scope", f"'local' or 'global', got {scope!r}")
    calls = sorted(_calls(row, block_tokens, 0.0, ""), key=lambda call: call.at_s)
    if not calls:
        return None
    return Session(name, name if scope == "local" else "", block_tokens, calls)


def _calls(row: Row, block_tokens: int, begin_s: float, agent: str) -> Iterator[Call]:
    requests = row.get("requests")
    if not isinstance(requests, list):
        raise BadField("requests", "a list")
    blocks = _Blocks(block_tokens)
    last_s = 0.0
    for number, request in enumerate(requests):
        try:
            if not isinstance(request, dict):
                raise BadField("", "an object")
            at_s = seconds(request, "t")
            if request.get("type") == "subagent":
                name = f"{agent}/{text(request, 'agent_id', f'agent_{number}')}"
                yield from _calls(request, block_tokens, begin_s + at_s, name)
                continue
            if at_s < last_s:
                raise BadField("t", "no time before that of the call before")
            last_s = at_s
            keep, runs = blocks.read(request)
            yield Call(
                begin_s + at_s,
                agent,
                label(request, "model"),
                keep,
                runs,
                whole(request, "in"),
                whole(request, "out", 1),
            )
        except BadField as bad:
            raise BadField(f"requests[{number}].{bad.field}", bad.expected) from None


class _Blocks:
    """Reads the ids of one agent's calls, in either form, as kept ids and runs of others."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._count = 0
        self._ids: list[int] = []

    def read(self, request: Row) -> tuple[int, Sequence[int]]:
        if "keep" in request:
            keep = whole(request, "keep")
            runs: Sequence[int] = array("Q", block_ids(request, "runs"))
            if keep > self._count or len(runs) % 2:
                raise BadField("keep", f"at most {self._count}, and an even number of runs")
            self._ids = []
        else:
            ids = block_ids(request, "hash_ids")
            keep, runs = encoded(ids, self._ids)
            self._ids = ids
        self._count = keep + sum(runs[1::2])
        most = -(-whole(request, "in") // self._block_tokens)
        if self._count > most:
            raise BadField("hash_ids", f"at most {most} for the tokens in, got {self._count}")
        return keep, runs
