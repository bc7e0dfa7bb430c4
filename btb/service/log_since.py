"""The service's own log from some time on, as a trace: what `btb train --since` learns from."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from btb.errors import ConfigError
from btb.service.recovery import parse_row
from btb.service.segments import PATTERN, segment_number

LATE_S = 10.0
"""Rows may be so much older than those before them; clients may be late by `late_s`."""

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def parse_since(text: str, now: datetime) -> datetime:
    """Return the time that `text` means: a duration before `now`, or a time as ISO 8601 has it.

    A time without a zone is local.

    Raises
    ------
    ConfigError
        If it is neither.

    Examples
    --------
    >>> now = datetime(2026, 1, 2, tzinfo=UTC)
    >>> parse_since("90m", now).isoformat()
    '2026-01-01T22:30:00+00:00'
    >>> parse_since("2026-01-01T12:00Z", now).isoformat()
    '2026-01-01T12:00:00+00:00'
    """
    duration = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([smhd])", text.strip())
    try:
        if duration is not None:
            return now - timedelta(**{_UNITS[duration[2]]: float(duration[1])})
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"--since: expected a duration like 2h or 30m, or a time like 2026-01-31T08:00, got "
            f"{text!r}"
        ) from error


@contextmanager
def log_since(folders: Sequence[Path], since: datetime) -> Iterator[list[Path]]:
    """Yield a trace file for each of `folders`, with the arrivals of its log at `since` or later.

    They are copies, so the log may go on being written, and the digest of a trace is that of the
    rows that were learnt from. They are gone in the end.

    Raises
    ------
    ConfigError
        If a folder holds no log of `btb serve`, can't be read, or has no such arrival.
    """
    with TemporaryDirectory(prefix="btb-since-") as temporary:
        found = []
        for number, folder in enumerate(folders):
            inner = Path(temporary) / str(number)
            inner.mkdir()
            at = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            path = inner / f"{folder.resolve().name}-since-{at}.jsonl"
            try:
                rows = _copy(folder, since.timestamp(), path)
            except OSError as error:
                raise ConfigError(f"log folder {folder}: {error.strerror or error}") from error
            if not rows:
                raise ConfigError(f"log folder {folder}: no arrival since {at}")
            found.append(path)
        yield found


def _copy(folder: Path, since_unix_s: float, to: Path) -> int:
    """Copy arrivals, and what can't be read among them, and return how many arrivals."""
    files = sorted(path for path in folder.glob(PATTERN) if segment_number(path))
    if not files:
        raise ConfigError(f"--since: {folder} is no log folder of btb serve")
    rows = 0
    with to.open("wb") as out:
        for path, after in zip(files, [*files[1:], None], strict=True):
            if after is None or _begins_s(after) >= since_unix_s - LATE_S:
                with path.open("rb") as file:
                    rows += _copy_segment(file, path, since_unix_s, out)
    return rows


def _begins_s(path: Path) -> float:
    """Return when the first row of a segment is of, in seconds since 1970."""
    with path.open("rb") as file:
        origin_unix_s = _origin(file, path)
        row = parse_row(file.readline()) or {}
    at_s = row.get("at_s")
    return origin_unix_s + at_s if isinstance(at_s, int | float) else float("inf")


def _copy_segment(file: BinaryIO, path: Path, since_unix_s: float, out: BinaryIO) -> int:
    since_s = since_unix_s - _origin(file, path)
    rows, begun = 0, False
    for line in file:
        row = parse_row(line)
        if row is None:
            # The reader counts it; but the last one may be half written at this very moment.
            if begun and line.endswith(b"\n"):
                out.write(line)
            continue
        at_s = row.get("at_s")
        begun = begun or (isinstance(at_s, int | float) and at_s >= since_s)
        if row.get("kind") == "arrival" and begun and not _before(at_s, since_s):
            out.write(line)
            rows += 1
    return rows


def _before(at_s: object, since_s: float) -> bool:
    return isinstance(at_s, int | float) and at_s < since_s


def _origin(file: BinaryIO, path: Path) -> float:
    """Return the origin in the header of a segment, which has just been opened."""
    origin = (parse_row(file.readline()) or {}).get("origin_unix_s")
    if not isinstance(origin, int | float):
        raise ConfigError(f"--since: {path} does not begin as a log of btb serve does")
    return float(origin)
