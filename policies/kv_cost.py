"""A continuous score of cache and load, after NVIDIA Dynamo's KV router."""

from collections.abc import Sequence
from random import Random

from forecasting.arrival import Arrival
from forecasting.forecast import Forecast
from policies.base import ClusterView, Decision
from policies.fixed import FixedRule
from policies.ranking import first_by, ranked


class KvCost(FixedRule):
    """The replica with the lowest `overlap_weight * prefill blocks + active blocks`.

    Prefill blocks are those that the replica has queued plus those of this prompt that it does not
    hold; active blocks are estimated as its load times this prompt's blocks. As in Dynamo's
    default, only blocks that exist count: a prefix that is still being computed is invisible.
    """

    def __init__(self, rng: Random, *, overlap_weight: float = 1.0) -> None:
        self._rng = rng
        self._overlap_weight = overlap_weight

    def decide(
        self, arrival: Arrival, forecasts: Sequence[Forecast], cluster: ClusterView, now_s: float
    ) -> Decision:
        """Return the replicas by rising cost."""
        blocks = -(-arrival.input_tokens // arrival.block_tokens)
        block_s = cluster.prefill_s(arrival.input_tokens, 0) / blocks
        resident = cluster.resident_blocks(arrival.chain)
        costs = [
            self._overlap_weight * (queue_s / block_s + blocks - held) + load * blocks
            for queue_s, held, load in zip(
                cluster.queue_s(), resident, cluster.loads(), strict=True
            )
        ]
        first = first_by(costs, self._rng)
        return Decision(ranked(cluster.replicas, costs, first), reason="lowest cost")
