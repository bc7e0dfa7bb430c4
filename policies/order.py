"""In which order requests that wait on one replica are served."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from forecasting.forecaster import BOUNDARY_TOKENS
from policies.base import ClusterView, Decision, Feedback, Policy

AGE_PRICE = 0.05
"""Seconds of work that a second of waiting is worth: who has waited for long is served all the
same. A request that takes 30 s overtakes a fresh one that takes none after ten minutes."""

MAX_WAITING = 100_000
"""Requests that are remembered as waiting; the oldest is forgotten past this."""

MAX_WAIT_S = 3600.0
"""How long a request is remembered as waiting whose first token nobody tells of."""


@dataclass(frozen=True, slots=True)
class Claims:
    """With how many each replica's work would be shared, and what the time of arrival adds."""

    sharing: Sequence[int]
    age_s: float

    def priorities(self, works_s: Sequence[float]) -> list[float]:
        """Return the priority on each replica, where the request needs so much compute."""
        age_s = self.age_s
        return [
            work_s / sharing + age_s for work_s, sharing in zip(works_s, self.sharing, strict=True)
        ]


class QueueOrder:
    """Gives each request a priority: its work, shared by all who wait for the same prefix.

    The work of a request is the prefill of what its replica does not hold. Others that wait there
    for the same prefix are served by the same work, so each newcomer has the work divided by their
    number: it overtakes them, and does the work for all. This is what Smith's rule (1956) does
    with the weighted sum of waits: shortest work for its weight first. The time of arrival comes
    on top, so that nobody starves.
    """

    def __init__(self) -> None:
        self._waiting: Counter[tuple[str, int]] = Counter()
        self._where: dict[str, tuple[str, int]] = {}
        self._noted_s: deque[tuple[float, str]] = deque()

    def claims(self, arrival: Arrival, prefix_key: int, names: Sequence[str]) -> Claims:
        """Return what `arrival`, which begins with a prefix, has a claim to on each replica."""
        get = self._waiting.get
        sharing = [get((name, prefix_key), 0) + 1 for name in names]
        return Claims(sharing, AGE_PRICE * arrival.at_s)

    def note(self, arrival: Arrival, prefix_key: int, name: str) -> None:
        """Remember that `arrival` waits for a prefix on the replica `name`."""
        if not arrival.request_id:
            return
        place = (name, prefix_key)
        self._waiting[place] += 1
        self._where[arrival.request_id] = place
        self._noted_s.append((arrival.at_s, arrival.request_id))
        while self._noted_s[0][0] < arrival.at_s - MAX_WAIT_S or len(self._noted_s) > MAX_WAITING:
            self.forget(self._noted_s.popleft()[1])

    def forget(self, request_id: str) -> None:
        """Take in that a request has its first token, and waits no more."""
        place = self._where.pop(request_id, None)
        if place is not None:
            self._waiting[place] -= 1
            if not self._waiting[place]:
                del self._waiting[place]


def boundary_key(arrival: Arrival) -> int:
    """Return the hash of the first 2,048 tokens of a prompt, or of all if it has fewer."""
    blocks = max(1, BOUNDARY_TOKENS // arrival.block_tokens)
    return arrival.chain[min(blocks, len(arrival.chain)) - 1] if arrival.chain else 0


def work_s(arrival: Arrival, name: str, cluster: ClusterView) -> float:
    """Return the compute that `arrival` needs on the replica `name`, as it is now."""
    blocks = cluster.resident_blocks(arrival.chain)[list(cluster.replicas).index(name)]
    hit_tokens = min(blocks * arrival.block_tokens, arrival.input_tokens - 1)
    return cluster.prefill_s(arrival.input_tokens - hit_tokens, hit_tokens)


class Ordered:
    """Any policy, with our queue order beside it: shows what is due to order alone."""

    def __init__(self, rng: Random, policy: Callable[[Random], Policy]) -> None:
        self._policy = policy(rng)
        self._order = QueueOrder()

    @property
    def horizons_s(self) -> tuple[float, ...]:
        """Those of the policy inside."""
        return self._policy.horizons_s

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return what the policy inside decides, with a priority."""
        decision = self._policy.decide(arrival, forecasts, cluster, now_s)
        key, name = boundary_key(arrival), decision.ranked[0]
        needed_s = work_s(arrival, name, cluster)
        (priority,) = self._order.claims(arrival, key, [name]).priorities([needed_s])
        self._order.note(arrival, key, name)
        return replace(decision, priority=priority)

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        """Take in that a request waits no more."""
        self._order.forget(feedback.request_id)
        self._policy.learn_one(decision, feedback)
