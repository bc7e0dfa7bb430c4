"""Block hashes as clients write them: whole numbers, decimal or hexadecimal strings."""

import re

HASH_LIMIT = 2**64

_WRITTEN = re.compile(r"[0-9]{1,20}|0[xX][0-9a-fA-F]{1,16}", re.ASCII)


def parse_hash(given: object) -> int | None:
    """Return the hash that `given` stands for, or None if it stands for none.

    >>> parse_hash(31), parse_hash("31"), parse_hash("0x1f")
    (31, 31, 31)
    >>> parse_hash("1f"), parse_hash(-1), parse_hash(2**64), parse_hash(True)
    (None, None, None, None)
    """
    if isinstance(given, str) and _WRITTEN.fullmatch(given):
        given = int(given, 16 if given[1:2] in ("x", "X") else 10)
    if type(given) is int and 0 <= given < HASH_LIMIT:
        return given
    return None


def show_hash(block: int) -> str:
    """Return how answers write a hash: JSON numbers lose digits past 2**53 in many readers.

    >>> show_hash(31)
    '0x000000000000001f'
    """
    return f"0x{block:016x}"
