"""Sessions without a common clock: what one is, when it starts, and all laid on one clock."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from xxhash import xxh3_64_intdigest, xxh3_128

from btb.traces.hashing import Chainer, root, shared
from forecasting.arrival import Arrival


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a session, `at_s` seconds after its start.

    Its block ids are the first `keep` of the same agent's call before, then those in `runs`: start,
    length, start, length. Agents send their whole context with each call, so this takes a few
    numbers where the ids take thousands.
    """

    at_s: float
    agent: str
    model: str
    keep: int
    runs: Sequence[int]
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Session:
    """The calls of one session in the order of time, those of each agent in order too.

    `scope` is the session's name where ids mean something inside it only, else "".
    """

    name: str
    scope: str
    block_tokens: int
    calls: Sequence[Call]

    def fingerprint(self) -> bytes:
        """Return a hash of all but the name: equal for exact copies."""
        seen = xxh3_128(f"{self.block_tokens}".encode())
        for call in self.calls:
            numbers = (call.at_s, call.keep, len(call.runs), call.input_tokens, call.output_tokens)
            seen.update(repr((*numbers, call.agent, call.model)).encode())
            seen.update(array("Q", call.runs).tobytes())
        return seen.digest()


def start_s(session: str, spread_s: float, seed: int) -> float:
    """Return when a session starts: uniform in [0, spread_s), from its name and `seed` alone.

    So leaving sessions out does not move the others.

    >>> start_s("a", 60.0, seed=1) == start_s("a", 60.0, seed=1) != start_s("a", 60.0, seed=2)
    True
    """
    draw = xxh3_64_intdigest(session.encode("utf-8", "surrogatepass"), seed=seed & 2**64 - 1)
    return spread_s * (draw / 2**64)


def encoded(ids: Sequence[int], before: Sequence[int]) -> tuple[int, Sequence[int]]:
    """Return `ids` as how many leading ones `before` has too, and runs of the rest.

    >>> encoded([1, 2, 5, 6, 9], before=[1, 2, 3])
    (2, array('Q', [5, 2, 9, 1]))
    """
    keep = shared(ids, before)
    runs = array("Q")
    for one in ids[keep:]:
        if runs and one == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs.extend((one, 1))
    return keep, runs


def decoded(keep: int, runs: Sequence[int], before: Sequence[int]) -> list[int]:
    """Return the ids that `encoded` took apart.

    >>> decoded(2, [5, 2, 9, 1], before=[1, 2, 3])
    [1, 2, 5, 6, 9]
    """
    ids = list(before[:keep])
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        ids.extend(range(start, start + length))
    return ids


def on_one_clock(sessions: Sequence[Session], starts_s: Sequence[float]) -> Iterator[Arrival]:
    """Yield the calls of all sessions in the order of time, each begun at its start.

    Chains are made when their call's turn comes, and a session's are forgotten after its last.
    """
    players = [_Player(one, begin_s) for one, begin_s in zip(sessions, starts_s, strict=True)]
    turns = [(player.next_s(), number) for number, player in enumerate(players)]
    heapify(turns)
    while turns:
        number = turns[0][1]
        yield players[number].play()
        if players[number].has_more():
            heapreplace(turns, (players[number].next_s(), number))
        else:
            heappop(turns)
            players[number].forget()


class _Player:
    """Plays one session's calls, one after the other."""

    def __init__(self, session: Session, begin_s: float) -> None:
        self._session = session
        self._begin_s = begin_s
        self._next = 0
        self._ids: dict[str, list[int]] = {}
        self._chainers: dict[tuple[str, str], Chainer] = {}

    def has_more(self) -> bool:
        return self._next < len(self._session.calls)

    def next_s(self) -> float:
        return self._begin_s + self._session.calls[self._next].at_s

    def play(self) -> Arrival:
        session, call, at_s = self._session, self._session.calls[self._next], self.next_s()
        self._next += 1
        ids = decoded(call.keep, call.runs, self._ids.get(call.agent, []))
        self._ids[call.agent] = ids
        key = (call.agent, call.model)
        if key not in self._chainers:
            start = root(session.block_tokens, model=call.model, scope=session.scope)
            self._chainers[key] = Chainer(start)
        return Arrival(
            at_s=at_s,
            chain=self._chainers[key].chain(ids),
            block_tokens=session.block_tokens,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            session=session.name + call.agent,
        )

    def forget(self) -> None:
        self._ids.clear()
        self._chainers.clear()
