"""LMCache's agent traces: the whole text of each call, on a real clock.

`timestamp` is in microseconds since 1970, or in seconds (RepoAgent); its size tells. `input` is the
prompt, cut into pieces of 64 tokens of 4 characters: an assumption, as no tokenizer is named.
"""

from collections.abc import Sequence
from dataclasses import replace

from btb.traces.fields import label, seconds, text
from btb.traces.format import Format, Reading, sorted_by_time
from btb.traces.hashing import CHARS_A_TOKEN, root, text_tokens
from btb.traces.options import ReaderOptions
from btb.traces.prompts import prompt_chain
from btb.traces.records import Row, Source, archive_part
from forecasting.arrival import Arrival

BLOCK_TOKENS = 64
SORT_WINDOW_S = float("inf")
"""Sessions stand one after the other, though they ran at the same time."""

MIN_MICROSECONDS = 1e14
"""Seconds since 1970 reach this in three million years, microseconds did in 1973."""


class Lmcache(Format):
    """Reader of LMCache agent traces; the files of a folder, or of one in an archive, are one."""

    name = "lmcache"
    joins = ".jsonl"

    def matches(self, row: Row) -> bool:
        """Return whether `row` is a call with its text."""
        return {"timestamp", "input", "output", "session_id"} <= row.keys()

    def reading(self, _: Source, __: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it."""
        block_tokens = options.block_tokens or BLOCK_TOKENS
        start = root(block_tokens)

        def parse(row: Row) -> Arrival:
            at_s, prompt = seconds(row, "timestamp"), text(row, "input")
            return Arrival(
                at_s=at_s / 1e6 if at_s >= MIN_MICROSECONDS else at_s,
                chain=prompt_chain(prompt, block_tokens, start),
                block_tokens=block_tokens,
                input_tokens=text_tokens(prompt),
                output_tokens=text_tokens(text(row, "output", "")),
                session=label(row, "session_id"),
            )

        return Reading(
            block_tokens,
            parser=lambda: parse,
            lay=sorted_by_time(SORT_WINDOW_S, options),
            notes=(f"lengths from text, at {CHARS_A_TOKEN} characters a token",),
        )

    def windows(self, source: Source) -> list[Source]:
        """Return one source for each top folder of an archive, by name."""
        parts = sorted({archive_part(record.file) for record in source.records()})
        if len(source.files) != 1 or len(parts) < 2:
            return [source]
        return [
            replace(source, name=f"{source.name}/{part.removesuffix('.jsonl')}", part=part)
            for part in parts
        ]
