"""The rows of a trace's files, one after the other, each with its place."""

import csv
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from btb.errors import TraceError
from btb.traces.files import MAX_LINE_BYTES, kind, lines, unpacked

Row = Mapping[str, Any]
"""One raw row: what a JSON object, a CSV line or a Parquet row holds, by name."""

ROWS_A_BATCH = 1024
"""Parquet rows held at a time."""


class Record(NamedTuple):
    """One row and where it is. `row` is None where `problem` says why; `torn` if it was cut off."""

    file: str
    line: int
    row: Row | None
    problem: str = ""
    torn: bool = False

    @property
    def where(self) -> str:
        """File and line, for a message."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rows of one trace are.

    `part` narrows it to one folder of an archive, or one trace of a file that holds several; `span`
    to a range of lines, first and last, where it is known that the others belong to other traces.
    """

    name: str
    files: tuple[Path, ...]
    part: str = ""
    span: tuple[int, int] | None = None

    def records(self) -> Iterator[Record]:
        """Yield the rows of all files, in order.

        Raises
        ------
        TraceError
            If a file can't be read at all.
        """
        for path in self.files:
            yield from _READERS.get(kind(path.name), _json_lines)(path, self)


def _json_lines(path: Path, source: Source) -> Iterator[Record]:
    first, last = source.span or (0, 0)
    with unpacked(path) as stream:
        for number, line in lines(stream, path.name):
            if number < first:
                continue
            if last and number > last:
                return
            yield _json_record(path.name, number, line)


def _json_record(file: str, number: int, text: bytes) -> Record:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        torn = not text.endswith(b"\n")
        problem = "one whole JSON object, the last line is cut off" if torn else "one JSON object"
        return Record(file, number, None, problem, torn)
    if not isinstance(row, dict):
        return Record(file, number, None, "one JSON object")
    return Record(file, number, row)


def _json_document(path: Path, _: Source) -> Iterator[Record]:
    """Yield the objects of one JSON file, which may also hold JSON lines in spite of its name."""
    with unpacked(path) as stream:
        text = stream.read()
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        for number, line in lines(io.BytesIO(text), path.name):
            yield _json_record(path.name, number, line)
        return
    for number, row in enumerate(whole if isinstance(whole, list) else [whole], start=1):
        if isinstance(row, dict):
            yield Record(path.name, number, row)
        else:
            yield Record(path.name, number, None, "one JSON object")


def _csv_lines(path: Path, _: Source) -> Iterator[Record]:
    csv.field_size_limit(MAX_LINE_BYTES)
    with unpacked(path) as stream:
        rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace"))
        try:
            names = next(rows, [])
            for values in rows:
                if len(values) == len(names):
                    yield Record(path.name, rows.line_num, dict(zip(names, values, strict=True)))
                elif values:
                    yield Record(path.name, rows.line_num, None, f"{len(names)} columns")
        except csv.Error as error:
            raise TraceError(f"{path}:{rows.line_num}: no CSV: {error}") from error


def _parquet_rows(path: Path, _: Source) -> Iterator[Record]:
    # Imported late: pyarrow takes a third of a second, and few traces are Parquet.
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as table:
            number = 0
            for batch in table.iter_batches(batch_size=ROWS_A_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield Record(path.name, number, row)
    except (OSError, ArrowException) as error:
        raise TraceError(f"{path}: can't be read as Parquet: {error}") from error


def _archive_members(path: Path, source: Source) -> Iterator[Record]:
    with unpacked(path) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    if _in_part(member, source.part):
                        yield from _member_lines(archive, member)
        except tarfile.TarError as error:
            raise TraceError(f"{path}: can't be read as a tar archive: {error}") from error


def _in_part(member: tarfile.TarInfo, part: str) -> bool:
    is_rows = member.isfile() and kind(member.name) in {".jsonl", ".json"}
    return is_rows and (not part or archive_part(member.name) == part)


def archive_part(member: str) -> str:
    """Return which part of an archive a member belongs to: its top folder, or itself.

    >>> archive_part("./taubench/a.jsonl"), archive_part("b.jsonl")
    ('taubench', 'b.jsonl')
    """
    return member.removeprefix("./").split("/", 1)[0]


def _member_lines(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[Record]:
    stream: BinaryIO | None = archive.extractfile(member)  # type: ignore[assignment]
    if stream is not None:
        for number, line in lines(stream, member.name):
            yield _json_record(member.name, number, line)


_READERS: Mapping[str, Callable[[Path, Source], Iterator[Record]]] = {
    ".csv": _csv_lines,
    ".json": _json_document,
    ".parquet": _parquet_rows,
    ".tar": _archive_members,
}
