"""Write generated windows to a folder: one Mooncake-format JSONL a window, and a manifest."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import zstandard

from btb.errors import ConfigError
from btb.traces.manifest import MANIFEST, MANIFEST_FORMAT
from btb.traces.workloads import FAMILIES
from btb.traces.workloads.article import ArticleSet, article
from btb.traces.workloads.base import BLOCK_TOKENS, Draft, Window
from forecasting.arrival import Arrival


def make_windows(family: str, parameters: object, *, seed: int, windows: int) -> Iterator[Window]:
    """Yield `windows` windows of `family`.

    Each has a generator of its own, seeded with family, seed and number, so the k-th window is the
    same however many are made.
    """
    for number in range(windows):
        rng = Random(f"{family}:{seed}:{number}")
        draft = Draft(rng)
        FAMILIES[family].add(parameters, draft)
        yield draft.window()


def read_article(path: Path, name: str) -> tuple[ArticleSet, dict[str, Any]]:
    """Return set `name` of the article's windows file, and its shape for a manifest.

    Raises
    ------
    ConfigError
        If the file can't be read, is no windows file, or has no set of that name.
    """
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        if name not in given["sets"]:
            known = ", ".join(sorted(given["sets"]))
            raise ConfigError(f"{path} has no set {name!r}; it has {known}")
        if given["block_tokens"] != BLOCK_TOKENS:
            raise ConfigError(f"{path} has blocks of {given['block_tokens']} tokens, not 256")
        found = given["sets"][name]
        shape: dict[str, Any] = {
            "span_s": float(found["burst_window_s"]),
            "size": int(given["burst_size"]),
            "prefix_tokens": int(given["prefix_blocks"]) * BLOCK_TOKENS,
            "suffix_tokens": int(given["suffix_tokens"]),
            "output_tokens": int(given["output_tokens"]),
        }
        starts_s = [[float(at_s) for at_s in one["burst_start_s"]] for one in found["windows"]]
        decoys_s = [[float(at_s) for at_s in one["decoy_s"]] for one in found["windows"]]
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is no windows file of the article: {error!r}") from error
    return ArticleSet(**shape, starts_s=starts_s, decoys_s=decoys_s), {"set": name, **shape}


def article_windows(given: ArticleSet) -> Iterator[Window]:
    """Yield the windows of `given`, in order."""
    for number in range(len(given.starts_s)):
        yield article(given, number)


def row(arrival: Arrival) -> str:
    """Return `arrival` as one line of Mooncake JSONL, without the line end.

    The time is in milliseconds with all its digits: nothing is rounded to whole ones.

    >>> row(Arrival(1.5, (0, 1), 256, input_tokens=300, output_tokens=7))
    '{"timestamp":1500.0,"input_length":300,"output_length":7,"hash_ids":[0,1]}'
    """
    fields: dict[str, object] = {
        "timestamp": arrival.at_s * 1000.0,
        "input_length": arrival.input_tokens,
        "output_length": arrival.output_tokens,
        "hash_ids": arrival.chain,
    }
    if arrival.session:
        fields["session_id"] = arrival.session
    if arrival.tenant:
        fields["tenant"] = arrival.tenant
    return json.dumps(fields, separators=(",", ":"))


def write_windows(
    out: Path,
    windows: Iterable[Window],
    header: Mapping[str, object],
    *,
    compress: bool = False,
    on_window: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Write `windows` and their manifest into the folder `out`, and return the manifest.

    Files are named window-000.jsonl and so on, with .zst behind where compressed. The manifest
    begins with `header`, and is written last, so a folder with a manifest is complete. Its times
    are on the files' clock; a reader that starts at the first request subtracts `first_s`.
    `on_window` is called after each window.
    """
    out.mkdir(parents=True, exist_ok=True)
    entries = []
    for number, window in enumerate(windows):
        name = f"window-{number:03d}.jsonl" + (".zst" if compress else "")
        text = "".join(row(arrival) + "\n" for arrival in window.arrivals).encode()
        data = zstandard.compress(text, 10) if compress else text
        (out / name).write_bytes(data)
        entries.append(_entry(name, data, window))
        on_window()
    manifest: dict[str, Any] = {
        "format": MANIFEST_FORMAT,
        "block_tokens": BLOCK_TOKENS,
        **header,
        "windows": entries,
    }
    (out / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return manifest


def _entry(name: str, data: bytes, window: Window) -> dict[str, object]:
    times_s = [arrival.at_s for arrival in window.arrivals] or [0.0]
    return {
        "file": name,
        "requests": len(window.arrivals),
        "first_s": times_s[0],
        "duration_s": times_s[-1] - times_s[0],
        "sha256": hashlib.sha256(data).hexdigest(),
        "bursts": [asdict(burst) for burst in window.bursts],
    }


def claim_folder(out: Path, *, force: bool) -> None:
    """Make sure that `out` may be written to; with `force`, clear an earlier run's files from it.

    Raises
    ------
    ConfigError
        If `out` is no folder, or holds files and `force` is not set.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file, expected a folder")
    if not out.exists() or not any(out.iterdir()):
        return
    if not force:
        raise ConfigError(f"{out} is not empty; name another folder, or overwrite with --force")
    for old in (out / MANIFEST, *sorted(out.glob("window-*.jsonl*"))):
        old.unlink(missing_ok=True)
