"""Blocks as files: each written whole or not at all, and known to be broken when it is."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from errno import EACCES
from hashlib import blake2s
from pathlib import Path
from secrets import token_hex

import msgspec
import xxhash

from replication.errors import Corrupted, TransportError
from replication.layout import Layout
from replication.transports.base import Piece
from replication.transports.pieces import after

VERSION = 1
DATA_AT = 4096
"""Where a block begins in its file: after a page for what is known of it."""
ENDING, UNFINISHED = ".kv", ".part"
VIEWS = 1024
"""The most that the kernel takes in one vectored call (IOV_MAX)."""


class BlockHead(msgspec.Struct, frozen=True):
    """What a file says of its block: whose and which it is, how it is cut, its XXH3 by rank."""

    version: int
    tenant: str
    block: int
    cut: str
    digests: tuple[int, ...]


def cut_of(layout: Layout) -> str:
    """Return what two layouts have in common whose blocks are cut in the same way."""
    return blake2s(repr(layout.layer_bytes).encode(), digest_size=16).hexdigest()


def file_name(tenant: str, block: int) -> str:
    """Return a name that shows neither."""
    return blake2s(f"{block} {tenant}".encode(), digest_size=20).hexdigest() + ENDING


def write_block(path: Path, head: BlockHead, views: Sequence[memoryview]) -> None:
    """Write a file that is there with all of its bytes, on the disk, or not there.

    Raises
    ------
    ValueError
        If what is known of the block is longer than a page.
    OSError
        If it can't be written. Nothing is left of it.
    """
    known = msgspec.json.encode(head).ljust(DATA_AT)
    if len(known) > DATA_AT:
        raise ValueError(f"{len(head.digests)} ranks don't fit into a page")
    part = path.with_suffix(f".{token_hex(4)}{UNFINISHED}")
    try:
        with part.open("xb", buffering=0) as file:
            for some in _few([memoryview(known), *views]):
                _write_all(file.fileno(), some)
            os.fsync(file.fileno())
        part.rename(path)
        _sync(path.parent)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise


def read_head(path: Path, layout: Layout) -> BlockHead:
    """Return what a file says of its block.

    Raises
    ------
    Corrupted
        If it isn't what `write_block` writes for this layout, or not all of it.
    OSError
        If it can't be read.
    """
    with path.open("rb", buffering=0) as file:
        known, size_bytes = file.read(DATA_AT), os.fstat(file.fileno()).st_size
    if size_bytes != DATA_AT + layout.block_bytes:
        raise Corrupted(f"{path} has {size_bytes} bytes of {DATA_AT + layout.block_bytes}")
    try:
        head = msgspec.json.decode(known, type=BlockHead)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupted(f"{path} doesn't say what it is: {error}") from error
    fits = head.version == VERSION and head.cut == cut_of(layout)
    if not fits or len(head.digests) != len(layout.ranks):
        raise Corrupted(f"{path} is of another model, layout or version")
    if path.name != file_name(head.tenant, head.block):
        raise Corrupted(f"{path} holds a block of another name")
    return head


def check_block(path: Path, head: BlockHead, layout: Layout) -> None:
    """Return if a file's bytes are those that were written.

    Raises
    ------
    Corrupted
        If not.
    OSError
        If it can't be read.
    """
    with path.open("rb", buffering=0) as file:
        file.seek(DATA_AT)
        for rank, digest in enumerate(head.digests):
            state, left = xxhash.xxh3_64(), layout.rank_bytes(rank)
            while left and (some := file.read(min(left, 8 << 20))):
                state.update(some)
                left -= len(some)
            if left or state.intdigest() != digest:
                raise Corrupted(f"{path} has other bytes on rank {rank} than were written")


Part = tuple[int, memoryview]
"""Where in a block, and where to."""


def parts_by_slot(
    layout: Layout, rank: int, pieces: Sequence[Piece], target: memoryview
) -> dict[int, list[Part]]:
    """Return, by slot, what pieces would be of a rank's memory if it were one memory.

    Raises
    ------
    TransportError
        If a piece lies outside, or there is no such rank.
    """
    if rank not in layout.ranks:
        raise TransportError(f"there is no rank {rank}", errno=EACCES)
    found: dict[int, list[Part]] = {}
    for piece in pieces:
        if piece.source_offset + piece.size_bytes > layout.region_bytes(rank):
            raise TransportError(f"{piece} ends outside of the region", errno=EACCES)
        done = 0
        while done < piece.size_bytes:
            slot, at, left = layout.locate(rank, piece.source_offset + done)
            size_bytes = min(left, piece.size_bytes - done)
            start = piece.target_offset + done
            found.setdefault(slot, []).append((at, target[start : start + size_bytes]))
            done += size_bytes
    return found


def read_parts(path: Path, parts: list[Part]) -> None:
    """Read parts of a block; what follows each other in the file is read at once.

    Raises
    ------
    TransportError
        If the file ends before.
    OSError
        If it can't be read.
    """
    run: list[memoryview] = []
    begin = end = 0
    for at, view in sorted(parts, key=lambda part: part[0]):
        if run and at != end:
            _read_into(path, begin, run)
            run = []
        if not run:
            begin = at
        run.append(view)
        end = at + view.nbytes
    _read_into(path, begin, run)


def _read_into(path: Path, offset: int, views: Sequence[memoryview]) -> None:
    with path.open("rb", buffering=0) as file:
        for some in _few(views):
            wanted = sum(view.nbytes for view in some)
            got = os.preadv(file.fileno(), some, DATA_AT + offset)
            while got < wanted:
                more = os.preadv(file.fileno(), after(some, got), DATA_AT + offset + got)
                if not more:
                    raise TransportError(f"{path} ends in the middle of a block")
                got += more
            offset += wanted


def _few(views: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    for first in range(0, len(views), VIEWS):
        yield list(views[first : first + VIEWS])


def _write_all(descriptor: int, views: list[memoryview]) -> None:
    while views:
        views = after(views, os.writev(descriptor, views))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
