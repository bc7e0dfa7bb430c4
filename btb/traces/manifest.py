"""Folders that `btb generate` wrote: windows in order, with their sums."""

import json
from pathlib import Path

from btb.errors import TraceError
from btb.traces.fields import BadField, mapping, text, whole
from btb.traces.files import sha256

MANIFEST = "manifest.json"
MANIFEST_FORMAT = "btb-windows-1"


def manifest_windows(folder: Path) -> tuple[list[Path], int]:
    """Return the files of the windows in `folder`, in order, and their block size in tokens.

    Raises
    ------
    TraceError
        If the manifest isn't one of ours, or a file is missing or not the one that was written.
    """
    path = folder / MANIFEST
    try:
        manifest = mapping({"manifest": json.loads(path.read_bytes())}, "manifest")
        if text(manifest, "format") != MANIFEST_FORMAT:
            raise BadField("format", repr(MANIFEST_FORMAT))
        block_tokens = whole(manifest, "block_tokens")
        if block_tokens < 1:
            raise BadField("block_tokens", "1 or more")
        entries = manifest.get("windows")
        if not isinstance(entries, list) or not entries:
            raise BadField("windows", "a list of windows")
        return [_window(folder, entry) for entry in entries], block_tokens
    except (OSError, ValueError, BadField) as error:
        raise TraceError(f"{path}: {error}") from error


def _window(folder: Path, entry: object) -> Path:
    window = mapping({"windows[]": entry}, "windows[]")
    name, expected = text(window, "file"), text(window, "sha256", "")
    path = folder / name
    if Path(name).name != name or not path.is_file():
        raise TraceError(f"{folder / MANIFEST}: file: no {name!r} in the folder")
    if expected and sha256(path) != expected:
        raise TraceError(f"{path}: not the file that the manifest was written for (its sha256)")
    return path
