"""Reads the log after a stop of any kind: what was written whole, and what has to be cut off."""

import json
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from btb.service.segments import PATTERN, segment_number, sync_folder


@dataclass(frozen=True, slots=True)
class Recovered:
    """The log as it was found.

    `cut_bytes` were behind the last whole row and are gone. `origin_unix_s` is None for a new log.
    """

    files: tuple[Path, ...]
    cut_bytes: int
    origin_unix_s: float | None

    @property
    def next_number(self) -> int:
        """Number of the next segment."""
        return segment_number(self.files[-1]) + 1 if self.files else 1

    @property
    def size_bytes(self) -> int:
        """Bytes in all files."""
        return sum(path.stat().st_size for path in self.files)


def recover(folder: Path) -> Recovered:
    """Return the segments in `folder`, after cutting off a torn end of the last one.

    A kill leaves the beginning of a row, a power cut perhaps zeros: whatever comes after the last
    line that is a whole JSON object was never acknowledged.

    Raises
    ------
    OSError
        If a file can't be read or cut.
    """
    files = sorted(path for path in folder.glob(PATTERN) if segment_number(path))
    cut_bytes = 0
    while files:
        size_bytes = files[-1].stat().st_size
        keep_bytes = intact_bytes(files[-1])
        cut_bytes += size_bytes - keep_bytes
        if keep_bytes < size_bytes:
            _cut(files[-1], keep_bytes)
        if keep_bytes:
            break
        files.pop().unlink()  # an empty one was never written to
        sync_folder(folder)
    return Recovered(tuple(files), cut_bytes, _origin(files))


def intact_bytes(path: Path) -> int:
    """Return how many bytes of the file at `path` end with its last whole row."""
    if not path.stat().st_size:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = text.rfind(b"\n") + 1
        while end:
            start = text.rfind(b"\n", 0, end - 1) + 1
            if parse_row(text[start:end]) is not None:
                break
            end = start
        return end


def parse_row(line: bytes) -> dict[str, Any] | None:
    r"""Return the JSON object that `line` is, or None.

    >>> parse_row(b'{"v": 1}\n'), parse_row(b'{"v": '), parse_row(b"7")
    ({'v': 1}, None, None)
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def newest_rows(
    files: tuple[Path, ...], newest_bytes: int
) -> Iterator[tuple[dict[str, Any] | None, int]]:
    """Yield the rows in the last `newest_bytes` of `files`, and the bytes of each.

    A line that is no row comes as None.

    Raises
    ------
    OSError
        If a file can't be read.
    """
    skip_bytes = max(0, sum(path.stat().st_size for path in files) - newest_bytes)
    for path in files:
        size_bytes = path.stat().st_size
        if skip_bytes >= size_bytes:
            skip_bytes -= size_bytes
            continue
        with path.open("rb") as file:
            _skip(file, skip_bytes)
            skip_bytes = 0
            for line in file:
                yield parse_row(line), len(line)


def _skip(file: BinaryIO, skip_bytes: int) -> None:
    """Go on to the first line that begins at `skip_bytes` or later."""
    if skip_bytes:
        file.seek(skip_bytes - 1)
        file.readline()


def _cut(path: Path, keep_bytes: int) -> None:
    with path.open("r+b") as file:
        file.truncate(keep_bytes)
        os.fsync(file.fileno())


def _origin(files: list[Path]) -> float | None:
    for path in files:
        with path.open("rb") as file:
            row = parse_row(file.readline()) or {}
        origin = row.get("origin_unix_s")
        if isinstance(origin, float | int):
            return float(origin)
    return None
