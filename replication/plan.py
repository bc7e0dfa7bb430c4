"""Turns a decision into moves that can be carried out twice and move bytes once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an agent starts without what policies need: they bring scipy along
    from policies.base import Copy, Decision


@dataclass(frozen=True, slots=True)
class Move:
    """One prefix to be brought to one replica, from the first of `holders` that can give it.

    `chain` are the prefix's blocks and no more. `deadline_s` is on the arrivals' clock, `value_s`
    the delay that the copy is expected to save, summed over requests. `via` names a replica to
    which the same prefix is on its way: the bytes come from there as they land, what they have to
    be like is still asked of a holder. One that others follow is not `striped`: its bytes have to
    be those of a single holder.
    """

    tenant: str
    chain: tuple[int, ...]
    holders: tuple[str, ...]
    target: str
    size_bytes: int
    deadline_s: float
    value_s: float
    reason: str
    via: str = ""
    striped: bool = True

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes two moves the same: target, tenant, and the prefix's hash."""
        return (self.target, self.tenant, self.chain[-1])

    @property
    def worth(self) -> float:
        """Seconds saved for each byte moved; what copies are ordered by."""
        return self.value_s / self.size_bytes if self.size_bytes else inf


def make_plan(
    decision: "Decision", tenant: str, others: Mapping[int, Sequence[str]] | None = None
) -> tuple[Move, ...]:
    """Return the moves of a decision, those that save most for each byte first.

    Copies of one prefix to one target become one move: it has the greatest value and the latest
    deadline of them, and all their sources. The plan is a function of its arguments; running it
    again moves nothing that is there already.

    Parameters
    ----------
    decision
        What a policy ordered.
    tenant
        Whose prefixes these are.
    others
        By `Prefix.key`, replicas to be asked after the copy's own source.

    Raises
    ------
    ValueError
        If a copy names no block, or the same replica as source and target.
    """
    moves: dict[tuple[str, str, int], Move] = {}
    for copy in decision.copies:
        move = _move(copy, tenant, (others or {}).get(copy.prefix.key, ()))
        moves[move.key] = _merged(moves.get(move.key, move), move)
    return tuple(sorted(moves.values(), key=lambda move: (-move.worth, move.deadline_s, move.key)))


def _move(copy: "Copy", tenant: str, others: Sequence[str]) -> Move:
    chain = copy.chain[: copy.prefix.blocks]
    if not chain:
        raise ValueError(f"a copy to {copy.target} names no block")
    if copy.source == copy.target:
        raise ValueError(f"a copy from {copy.source} to itself")
    holders = dict.fromkeys((copy.source, *others))
    holders.pop(copy.target, None)
    return Move(
        tenant,
        chain,
        tuple(holders),
        copy.target,
        copy.size_bytes,
        copy.deadline_s,
        copy.value_s,
        copy.reason,
    )


def _merged(one: Move, other: Move) -> Move:
    return replace(
        one,
        holders=tuple(dict.fromkeys((*one.holders, *other.holders))),
        deadline_s=max(one.deadline_s, other.deadline_s),
        value_s=max(one.value_s, other.value_s),
    )
