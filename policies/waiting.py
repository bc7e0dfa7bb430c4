"""How long requests wait for one of several replicas that all hold what they need."""

from dataclasses import dataclass
from math import exp, sqrt

from policies.base import ClusterView

RATE_TAU_S = 60.0
"""Time over which rates of arrivals and of work are averaged, exponentially."""

CHUNK_TOKENS = 2048
"""Tokens that an engine computes before it looks who is next: vLLM's usual
`max_num_batched_tokens`."""

CROWDED_SHARE = 0.01
"""Share of requests that find KV of theirs evicted from which on HBM counts as crowded."""

FULL = 0.95
"""Share of its time above which a replica counts as overloaded: queues have no steady length."""


def mean_wait_s(servers: int, busy_share: float, left_s: float, span_s: float) -> float:
    """Return the mean wait for one of `servers`, each busy for `busy_share` of its time.

    `left_s` is what is left on average of the work that a newcomer finds, E[S²] / 2 E[S]. The
    approximation of M/G/c by Sakasegawa (1977), exact for one server (Pollaczek-Khinchine):

        W = left * busy^(sqrt(2 (c + 1)) - 1) / (c (1 - busy))

    Above `FULL` the queue grows by what cannot be served while the burst lasts, `span_s`.

    >>> round(mean_wait_s(1, 0.5, 0.1, 10.0), 3), round(mean_wait_s(2, 0.5, 0.1, 10.0), 3)
    (0.1, 0.037)

    References
    ----------
    Sakasegawa, H. (1977). An approximation formula L_q = alpha rho^beta / (1 - rho). Annals of the
    Institute of Statistical Mathematics 29.
    """
    steady = min(busy_share, FULL)
    wait_s: float = left_s * steady ** (sqrt(2 * (servers + 1)) - 1) / (servers * (1 - steady))
    return wait_s + max(0.0, busy_share - FULL) * span_s / 2


@dataclass(slots=True)
class Work:
    """Requests and compute of late, all replicas together; what was is forgotten exponentially."""

    arrivals: float = 0.0
    evicted: float = 0.0
    _seconds: float = 0.0
    _squares: float = 0.0
    _last_s: float = 0.0

    def pass_time(self, now_s: float) -> None:
        """Let what is counted decay until `now_s`."""
        left = exp((self._last_s - now_s) / RATE_TAU_S)
        self.arrivals *= left
        self.evicted *= left
        self._seconds *= left
        self._squares *= left
        self._last_s = now_s

    def add(self, work_s: float) -> None:
        """Count a request that takes `work_s` of compute."""
        self._seconds += work_s
        self._squares += work_s * work_s

    def arrive(self, evicted: bool) -> None:
        """Count a request; `evicted` says whether KV of its prompt was found below some HBM."""
        self.arrivals += 1.0
        self.evicted += evicted

    @property
    def crowded(self) -> bool:
        """Whether what HBM evicts is asked for again; most of what goes never is."""
        return self.evicted > CROWDED_SHARE * self.arrivals

    def busy_share(self, replicas: int) -> float:
        """Return the share of its time that a replica computes."""
        return self._seconds / RATE_TAU_S / replicas

    def left_s(self, cluster: ClusterView) -> float:
        """Return what is left of a replica's work when a request with a good priority comes."""
        mean_s = self._squares / (2 * self._seconds) if self._seconds else 0.0
        chunk_s = cluster.prefill_s(CHUNK_TOKENS, 0) / 2
        return min(mean_s, chunk_s) if cluster.by_priority else mean_s
