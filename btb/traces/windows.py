"""Traces and windows from files and folders, as a person names them on the command line."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from btb.errors import TraceError
from btb.traces.files import stem
from btb.traces.folder import folder_sources
from btb.traces.manifest import MANIFEST, manifest_windows
from btb.traces.opening import find_format, make_traces
from btb.traces.options import ReaderOptions
from btb.traces.records import Source
from btb.traces.trace import Trace

DEFAULTS = ReaderOptions()


def open_trace(path: Path, *, fmt: str | None = None, options: ReaderOptions = DEFAULTS) -> Trace:
    """Return the trace in `path`, a file or a folder that is one trace.

    `fmt` is the name of a format; None finds out from the first rows. A file that holds several
    traces is read as one; `open_windows` takes it apart.

    Raises
    ------
    ConfigError
        If no format is called `fmt`.
    TraceError
        If the file can't be read, fits no format, or the folder holds several traces.
    """
    if path.is_dir():
        windows = open_windows([path], fmt=fmt, options=options)
        if len(windows) != 1:
            raise TraceError(f"{path}: holds {len(windows)} windows, expected a single trace")
        return windows[0]
    return make_traces(_file(path), fmt, options, whole=True)[0]


def open_windows(
    paths: Sequence[Path], *, fmt: str | None = None, options: ReaderOptions = DEFAULTS
) -> list[Trace]:
    """Return the windows in `paths`, in order.

    A file is one window, or as many as it holds traces. A folder with a manifest gives the windows
    that it names. Any other folder, and the folders in it, give one for each trace file, by name,
    but one only for the files of formats that spread a trace over several.

    Raises
    ------
    ConfigError
        If no format is called `fmt`.
    TraceError
        If a file can't be read or fits no format, or a folder holds no trace.
    """
    if fmt:
        find_format(fmt)
    windows: list[Trace] = []
    for path in paths:
        if not path.is_dir():
            windows += make_traces(_file(path), fmt, options, whole=False)
        elif (path / MANIFEST).is_file():
            windows += _manifest(path, options)
        else:
            windows += _folder(path, fmt, options)
    return windows


def _file(path: Path) -> Source:
    if not path.is_file():
        raise TraceError(f"{path}: no such file")
    return Source(stem(path.name), (path,))


def _manifest(folder: Path, options: ReaderOptions) -> list[Trace]:
    files, block_tokens = manifest_windows(folder)
    fixed = replace(options, block_tokens=block_tokens)
    sources = [Source(f"{folder.name}/{stem(file.name)}", (file,)) for file in files]
    return [make_traces(one, "mooncake", fixed, whole=True)[0] for one in sources]


def _folder(folder: Path, fmt: str | None, options: ReaderOptions) -> list[Trace]:
    sources, left_out = folder_sources(folder, fmt)
    if not sources:
        raise TraceError(f"{folder}: no trace file in it, nor in the folders in it")
    shown = ", ".join(left_out[:3]) + (", ..." if len(left_out) > 3 else "")
    notes = (f"{len(left_out)} files of {folder.name} fit no format: {shown}",) if left_out else ()
    return [
        trace
        for number, (source, name) in enumerate(sources)
        for trace in make_traces(
            source,
            name,
            options,
            whole=len(source.files) > 1,
            notes=notes if number == 0 else (),
        )
    ]
