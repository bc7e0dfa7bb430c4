"""What a policy sees, what it answers, and what it is told afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast, Prefix

Chain = tuple[int, ...]


class ClusterView(Protocol):
    """The replicas as they are now; read only, the same for a simulated and a live cluster.

    Every list is in the order of `replicas`. A block counts as resident from the moment it has
    been computed or received, never before.
    """

    @property
    def replicas(self) -> Sequence[str]:
        """Names of the replicas that take requests."""
        ...

    @property
    def block_bytes(self) -> int:
        """KV bytes of one block, over all ranks of a replica."""
        ...

    def loads(self) -> Sequence[int]:
        """Requests waiting or running on each replica."""
        ...

    def queue_s(self, priorities: Sequence[float] | None = None) -> Sequence[float]:
        """Seconds of prefill work ahead of a request that joined each replica's queue now.

        With the priority that it would have on each; without, all that is queued. Where engines
        serve in order of arrival, priorities change nothing.
        """
        ...

    @property
    def by_priority(self) -> bool:
        """Whether replicas serve by priority, not only in order of arrival."""
        ...

    def behind(self, priorities: Sequence[float]) -> Sequence[int]:
        """Requests waiting on each replica that one with this priority would overtake there."""
        ...

    def resident_blocks(self, chain: Chain) -> Sequence[int]:
        """Leading blocks of `chain` that each replica holds in HBM, ready to be used."""
        ...

    def stored_blocks(self, chain: Chain) -> Sequence[int]:
        """Leading blocks of `chain` in HBM or in the replica's own RAM or disk."""
        ...

    def pending(self, chain: Chain) -> Sequence[tuple[int, float]]:
        """Leading blocks of `chain` each replica will hold, and seconds until then.

        Counts what is being computed, what waits to be computed and what is being received.
        `(0, 0.0)` where nothing of it is under way.
        """
        ...

    def prefill_s(self, tokens: int, context_tokens: int) -> float:
        """Seconds to compute the KV of `tokens` after `context_tokens` that are there already."""
        ...

    def copy_s(self, source: int, target: int, size_bytes: float) -> float:
        """Seconds to move `size_bytes` from one replica's memory to another's, as links are now."""
        ...

    def load_s(self, replica: int, chain: Chain) -> float:
        """Seconds to bring what the replica's own RAM and disk have of `chain` into its HBM."""
        ...

    def free_bytes(self) -> Sequence[float]:
        """HBM bytes of each replica that no cached block and no running request holds."""
        ...


@dataclass(frozen=True, slots=True)
class Copy:
    """One prefix to be moved to one replica, or up from its own RAM or disk: `source` is `target`.

    `deadline_s` is the time, on the arrivals' clock, by which it has to be there to be of use;
    infinite for none. `value_s` is the delay that it is expected to save, summed over requests,
    `cost_s` the time that it keeps links busy, `reason` a sentence for a person.
    """

    prefix: Prefix
    chain: Chain
    source: str
    target: str
    size_bytes: int
    deadline_s: float
    value_s: float
    cost_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Keep:
    """A prefix that goes last of all from a replica's HBM until `until_s`."""

    chain: Chain
    replica: str
    until_s: float


@dataclass(frozen=True, slots=True)
class Compute:
    """A prefix that nobody holds, to be computed while its replica is idle, before it is asked for.

    Requests go before it. `reason` is a sentence for a person.
    """

    chain: Chain
    replica: str
    reason: str


@dataclass(frozen=True, slots=True)
class Foresight:
    """What is done between requests, ahead of those that are expected."""

    copies: tuple[Copy, ...] = ()
    keeps: tuple[Keep, ...] = ()
    computes: tuple[Compute, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes, best replica first, and which copies and keeps start now.

    Of requests that wait on one replica the one with the lowest `priority` is served first, as by
    vLLM's priority scheduling; equal ones in order of arrival.
    """

    ranked: tuple[str, ...]
    copies: tuple[Copy, ...] = ()
    reason: str = ""
    priority: float = 0.0
    keeps: tuple[Keep, ...] = ()


@dataclass(frozen=True, slots=True)
class Feedback:
    """What came of a decision: where the request ran, what it found there, how long it took."""

    request_id: str
    replica: str
    ttft_s: float
    hit_tokens: int


class Policy(Protocol):
    """Chooses where a request runs and where its prefix should be, and learns what came of it.

    A policy does no I/O, reads no clock and draws no random number of its own: all it needs is in
    the arguments, or was given to it when it was made. So the simulator and the service run the
    very same object, and two runs on the same arrivals decide the same.
    """

    @property
    def horizons_s(self) -> tuple[float, ...]:
        """Horizons at which `decide` looks at its forecasts; empty, and none are made, for none."""
        ...

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return where `arrival` goes and what to copy.

        `forecasts` are those of the prefixes the arrival shares with others, shallow to deep;
        empty where its prompt is unknown or too short to be worth it.
        """
        ...

    def learn_one(self, decision: Decision, feedback: Feedback) -> None:
        """Take in what came of an earlier decision. A fixed rule does nothing here."""
        ...


@dataclass(frozen=True, slots=True)
class Due:
    """A prefix whose next burst may begin soon: the forecast for it, and its chain."""

    forecast: Forecast
    chain: Chain


@runtime_checkable
class Anticipating(Policy, Protocol):
    """A policy that also acts between requests, ahead of bursts that are forecast."""

    @property
    def lead_s(self) -> float:
        """How far ahead `anticipate` looks, in seconds; 0, and it is not asked, for never."""
        ...

    def anticipate(self, due: Sequence[Due], cluster: ClusterView, now_s: float) -> Foresight:
        """Return what to do ahead of bursts that may begin within `lead_s`.

        `due` are those, the likeliest first; none of them has begun. Asked every five seconds,
        also when nothing is due.
        """
        ...
