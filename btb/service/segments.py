"""The files of the log: appended to in whole lines, synced, and a new one begun by size."""

import json
import os
from pathlib import Path

PATTERN = "log-*.jsonl"


def segment_path(folder: Path, number: int) -> Path:
    """Return where segment `number` lies.

    >>> segment_path(Path("logs"), 7).as_posix()
    'logs/log-00000007.jsonl'
    """
    return folder / f"log-{number:08d}.jsonl"


def segment_number(path: Path) -> int:
    """Return the number in the name of a segment, 0 if there is none.

    >>> segment_number(segment_path(Path("logs"), 7)), segment_number(Path("log-old.jsonl"))
    (7, 0)
    """
    digits = path.stem.removeprefix("log-")
    return int(digits) if digits.isdecimal() else 0


class Segments:
    """Appends to numbered files, each begun with a line that says when the service's time began.

    What `append` returned from is on the disk. What it failed with is not in the file: it is cut
    off again, so the next lines never stand behind half a line.

    Parameters
    ----------
    folder
        Where the files are.
    number
        Number of the first file. It must not be there yet.
    segment_bytes
        Size from which a new file is begun.
    origin_unix_s
        Seconds since 1970 at which the service's time is 0.
    """

    def __init__(
        self, folder: Path, *, number: int, segment_bytes: int, origin_unix_s: float
    ) -> None:
        self._folder = folder
        self._number = number
        self._segment_bytes = segment_bytes
        self._origin_unix_s = origin_unix_s
        self._file = -1
        self._good_bytes = 0

    def append(self, lines: bytes) -> None:
        """Write whole lines and wait until they are on the disk.

        Raises
        ------
        OSError
            If that can't be done, as when the disk is full. The lines are not in the log then, and
            the next call tries again.
        """
        if self._file >= 0 and self._good_bytes >= self._segment_bytes:
            self.close()
        if self._file < 0:
            self._open()
        try:
            _write(self._file, lines)
            os.fdatasync(self._file)
        except OSError:
            self._cut()
            raise
        self._good_bytes += len(lines)

    def close(self) -> None:
        """Close the file that is open, if any. May be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        path = segment_path(self._folder, self._number)
        header = {"v": 1, "kind": "segment", "number": self._number}
        line = json.dumps({**header, "origin_unix_s": self._origin_unix_s}).encode() + b"\n"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o640)
        try:
            _write(file, line)
            os.fdatasync(file)
            sync_folder(self._folder)
        except OSError:
            os.close(file)
            path.unlink()
            raise
        self._file, self._good_bytes = file, len(line)
        self._number += 1

    def _cut(self) -> None:
        # After a failed sync nobody knows what the file holds, so no more is put behind it.
        try:
            os.ftruncate(self._file, self._good_bytes)
        finally:
            self.close()


def sync_folder(folder: Path) -> None:
    """Make the names of new files in `folder` last."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
