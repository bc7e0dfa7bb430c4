"""Checks of parameters, with messages for the person who typed them."""

from btb.traces.workloads.base import BLOCK_TOKENS


def require(owner: object, *, positive: str = "", not_negative: str = "") -> None:
    """Check parameters of `owner`, named in strings with blanks between them.

    Raises
    ------
    ValueError
        If one is out of range; names it, its value and what it must be.
    """
    for name in positive.split():
        if not getattr(owner, name) > 0:
            raise ValueError(f"{name} must be positive, got {getattr(owner, name)!r}")
    for name in not_negative.split():
        if not getattr(owner, name) >= 0:
            raise ValueError(f"{name} must not be negative, got {getattr(owner, name)!r}")


def require_share(owner: object, names: str) -> None:
    """Check that the parameters in `names` are shares between 0 and 1.

    Raises
    ------
    ValueError
        If one is not.
    """
    for name in names.split():
        if not 0.0 <= getattr(owner, name) <= 1.0:
            raise ValueError(f"{name} must lie between 0 and 1, got {getattr(owner, name)!r}")


def require_block(owner: object, names: str) -> None:
    """Check that the parameters in `names` are lengths of one block or more, so can be shared.

    Raises
    ------
    ValueError
        If one is shorter.
    """
    for name in names.split():
        if getattr(owner, name) < BLOCK_TOKENS:
            got = getattr(owner, name)
            raise ValueError(f"{name} must be at least {BLOCK_TOKENS} (one block), got {got!r}")
