"""Files as streams of lines, whatever they are packed in."""

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from btb.errors import TraceError

MAX_WINDOW_BYTES = 2**27
"""Largest zstd window that is accepted: what `zstd --long=27` writes."""

MAX_LINE_BYTES = 2**26
"""Longest line that is accepted, so that a file without line ends cannot fill the memory."""

_PACKED = {".gz", ".zst"}
_EXPANDED = {".tgz": ".tar"}


def kind(name: str) -> str:
    """Return the extension that says what is in a file, without that of its packing.

    >>> kind("a/trace.jsonl.zst"), kind("x.tar.gz"), kind("y.tgz"), kind("server")
    ('.jsonl', '.tar', '.tar', '')
    """
    path = Path(name)
    if path.suffix in _PACKED:
        path = path.with_suffix("")
    return _EXPANDED.get(path.suffix, path.suffix)


def stem(name: str) -> str:
    """Return a file's name without folder and extensions.

    >>> stem("a/trace.v2.jsonl.zst"), stem("x.tgz")
    ('trace.v2', 'x')
    """
    path = Path(name)
    if path.suffix in _PACKED:
        path = path.with_suffix("")
    return path.stem


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for reading, unpacked by its extension (.gz, .tgz, .zst).

    Raises
    ------
    TraceError
        If it can't be opened, or is not packed the way its name says.
    """
    try:
        with path.open("rb") as raw:
            if path.suffix in {".gz", ".tgz"}:
                yield cast(BinaryIO, gzip.GzipFile(fileobj=raw))
            elif path.suffix == ".zst":
                unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
                stream = unpacker.stream_reader(raw, read_across_frames=True)
                yield cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, stream), 2**16))
            else:
                yield raw
    except OSError as error:
        raise TraceError(f"{path}: can't be read: {error.strerror or error}") from error
    except EOFError as error:
        raise TraceError(f"{path}: can't be unpacked: the file is cut off") from error
    except (zstandard.ZstdError, zlib.error) as error:
        raise TraceError(f"{path}: can't be unpacked: {error}") from error


def lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each line that is not blank.

    A line without line end can only be the last: the writer was cut off, or leaves it out. Where
    gzip data end too early, a piece of a line stands for what is lost.

    Raises
    ------
    TraceError
        If a line is longer than `MAX_LINE_BYTES`.
    """
    number = 0
    while True:
        try:
            line = stream.readline(MAX_LINE_BYTES)
        except EOFError:  # gzip knows that its data end too early; a piece of a line stands for it
            yield number + 1, b"{"
            return
        if not line:
            return
        number += 1
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            raise TraceError(f"{name}:{number}: line is longer than {MAX_LINE_BYTES:,} bytes")
        if not line.isspace():
            yield number, line


def sha256(path: Path) -> str:
    """Return the SHA-256 of the file's bytes, in hex digits.

    Raises
    ------
    TraceError
        If it can't be read.
    """
    try:
        with path.open("rb") as raw:
            return hashlib.file_digest(raw, "sha256").hexdigest()
    except OSError as error:
        raise TraceError(f"{path}: can't be read: {error.strerror or error}") from error
