"""What in a folder is a trace, and which files belong together."""

from pathlib import Path

from btb.traces.files import kind, stem
from btb.traces.opening import find_format, guess_format, read_head
from btb.traces.records import Source

KINDS = frozenset((".jsonl", ".json", ".csv", ".parquet", ".log", ".tar"))
"""What may be a trace in a folder, by extension."""


def folder_sources(folder: Path, fmt: str | None) -> tuple[list[tuple[Source, str]], list[str]]:
    """Return the traces in `folder` and the folders in it, each with its format's name.

    The second value are the files that might have been traces, but fit no format.
    """
    sources: list[tuple[Source, str]] = []
    left_out: list[str] = []
    for inner in [folder, *sorted(one for one in folder.iterdir() if one.is_dir())]:
        label = folder.name if inner == folder else f"{folder.name}/{inner.name}"
        files = sorted(one for one in inner.iterdir() if one.is_file() and kind(one.name) in KINDS)
        found = _formats(files, fmt)
        sources += _grouped(label, found)
        left_out += [one.name for one in files if one not in found]
    return sources, left_out


def _formats(files: list[Path], fmt: str | None) -> dict[Path, str]:
    """Return the format of each file that fits one; JSON documents all have the first one's."""
    found: dict[Path, str] = {}
    documents = fmt
    for file in files:
        is_document = kind(file.name) == ".json"
        name = documents if is_document else fmt
        if name is None:
            guessed = guess_format(read_head(Source(file.name, (file,))))
            name = guessed.name if guessed else None
        if name is not None:
            found[file] = name
            if is_document and find_format(name).joins == ".json":
                documents = name
    return found


def _grouped(label: str, found: dict[Path, str]) -> list[tuple[Source, str]]:
    joined: dict[str, list[Path]] = {}
    alone: list[tuple[Source, str]] = []
    for file, name in found.items():
        if find_format(name).joins == kind(file.name):
            joined.setdefault(name, []).append(file)
        else:
            alone.append((Source(f"{label}/{stem(file.name)}", (file,)), name))
    groups = [(Source(label, tuple(files)), name) for name, files in joined.items()]
    if len(groups) == 1 and not alone:
        return groups
    return alone + [
        (
            Source(
                f"{label}/{stem(one.files[0].name) if len(one.files) == 1 else name}", one.files
            ),
            name,
        )
        for one, name in groups
    ]
