"""RAGPulse: a week of a university's question answering over documents.

Ids name pieces of content (system prompt, passages, history, web results, the question), each with
a length of its own that stands in five files beside the trace. Prompts are laid out in that order
and cut into blocks of fixed size: a block's id is the hash of the pieces in it, each with where it
was cut. So two prompts share their leading blocks exactly as far as they hold the same pieces in
the same order. The few tokens of template between the pieces (6 to 12 a prompt) are in no file and
are left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct

from xxhash import xxh3_64_intdigest

from btb.errors import TraceError
from btb.traces.fields import BadField, block_ids, digits, label, mapping, whole
from btb.traces.format import Format, Parse, Reading, sorted_by_time
from btb.traces.hashing import chained, root
from btb.traces.options import ReaderOptions
from btb.traces.records import Row, Source
from forecasting.arrival import Arrival

BLOCK_TOKENS = 64
SORT_WINDOW_S = 8 * 86_400.0
"""The file is in no order at all, and spans seven days."""

PARTS = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")
"""The parts of a prompt, in the order they are laid out."""

SIDE_FILES = {
    "1_sys_prompt": "sys_prompt_id",
    "2_passages": "passage_id",
    "3_history": "history_id",
    "4_user_input": "user_input_id",
    "5_web_search": "web_search_id",
}
TRACE_FILE = "0_trace"

_CUT = Struct("<QQQ").pack


class Ragpulse(Format):
    """Reader of RAGPulse."""

    name = "ragpulse"

    def matches(self, row: Row) -> bool:
        """Return whether `row` has ids by part of the prompt."""
        ids = row.get("hash_ids")
        return isinstance(ids, dict) and "sys_prompt" in ids

    def reading(self, source: Source, _: Sequence[Row], options: ReaderOptions) -> Reading[Arrival]:
        """Return how to read it; the five files of lengths are read here.

        Raises
        ------
        TraceError
            If one of them is missing.
        """
        block_tokens = options.block_tokens or BLOCK_TOKENS
        tokens = _lengths(source.files[0])
        return Reading(
            block_tokens,
            parser=lambda: _parser(block_tokens, tokens),
            lay=sorted_by_time(SORT_WINDOW_S, options),
        )


def _lengths(trace: Path) -> Mapping[int, int]:
    tokens: dict[int, int] = {}
    for side, id_field in SIDE_FILES.items():
        path = trace.with_name(trace.name.replace(TRACE_FILE, side))
        if path == trace or not path.is_file():
            raise TraceError(
                f"{trace}: needs the file {side}.jsonl beside it, for the lengths of its ids; the "
                f"trace itself has {TRACE_FILE} in its name"
            )
        for record in Source(side, (path,)).records():
            try:
                row = mapping({side: record.row}, side)
                tokens[whole(row, id_field)] = whole(row, "token_length")
            except BadField as bad:
                raise TraceError(f"{record.where}: {bad}") from bad
    return tokens


def _parser(block_tokens: int, tokens: Mapping[int, int]) -> Parse[Arrival]:
    start = root(block_tokens)

    def parse(row: Row) -> Arrival:
        parts = mapping(row, "hash_ids")
        ids = [one for part in PARTS for one in block_ids(parts, part)]
        unknown = [one for one in ids if one not in tokens]
        if unknown:
            raise BadField("hash_ids", f"ids with a known length, got {unknown[0]}")
        blocks = pseudo_blocks(((one, tokens[one]) for one in ids), block_tokens)
        return Arrival(
            at_s=digits(row, "timestamp"),
            chain=chained(blocks, start),
            block_tokens=block_tokens,
            input_tokens=whole(row, "input_length"),
            output_tokens=whole(row, "output_length", 1),
            session=label(row, "session_id"),
        )

    return parse


def pseudo_blocks(pieces: Iterable[tuple[int, int]], block_tokens: int) -> Iterator[int]:
    """Yield an id for each whole block of a prompt made of `pieces`, each an id and its tokens.

    >>> one = list(pseudo_blocks([(7, 24), (8, 40)], 16))
    >>> other = list(pseudo_blocks([(7, 24), (9, 40)], 16))
    >>> len(one), [a == b for a, b in zip(one, other)]
    (4, [True, False, False, False])
    """
    cuts, room = b"", block_tokens
    for piece, tokens in pieces:
        offset = 0
        while tokens - offset >= room:
            yield xxh3_64_intdigest(cuts + _CUT(piece, offset, room))
            offset += room
            cuts, room = b"", block_tokens
        if offset < tokens:
            cuts += _CUT(piece, offset, tokens - offset)
            room -= tokens - offset
