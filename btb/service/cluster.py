"""The live cluster: the replicas that were named, and what is thought to be on them.

What is measured: the replicas there are, requests under way from here, first tokens, and what a
replica reports of itself. What is predicted, until engines tell: prefill times, queues, which
blocks are where, and when they are there.
"""

from btb.service.orders import Order, Orders
from btb.service.replica import Placement, Replica
from btb.service.view import LiveView
from btb.simulation.setups import Setup
from forecasting.arrival import Arrival


class LiveCluster:
    """The replicas, by name, in the order in which they were added.

    Where nobody carries copies out, `copies` is False: then policies see that a copy takes forever.
    """

    def __init__(self, setup: Setup, *, copies: bool = True) -> None:
        self.setup = setup
        self._copies = copies
        self.orders = Orders()
        self._replicas: dict[str, Replica] = {}

    def __len__(self) -> int:
        return len(self._replicas)

    @property
    def replicas(self) -> list[Replica]:
        """All replicas, in order."""
        return list(self._replicas.values())

    def find(self, name: str) -> Replica | None:
        """Return the replica called `name`, or None."""
        return self._replicas.get(name)

    def add(self, name: str, setup: Setup | None = None) -> Replica:
        """Return the replica called `name`, a new one if there is none yet."""
        replica = self._replicas.get(name)
        if replica is None:
            replica = self._replicas[name] = Replica(name, setup or self.setup)
        elif setup is not None and setup is not replica.setup:
            replica.change_setup(setup)
        return replica

    def remove(self, name: str) -> Replica | None:
        """Forget a replica, its blocks and the copies ordered to it; return it, or None."""
        self.orders.forget_replica(name)
        return self._replicas.pop(name, None)

    def view(self, now_s: float, block_tokens: int) -> LiveView:
        """Return what a policy sees at `now_s`, for chains of blocks of `block_tokens`."""
        replicas = list(self._replicas.values())
        orders = self.orders if self._copies else None
        return LiveView(replicas, self.setup, orders, now_s, block_tokens)

    def place(self, arrival: Arrival, name: str, now_s: float) -> Placement:
        """Send `arrival` to a replica: count it there, and expect its blocks.

        Raises
        ------
        KeyError
            If there is no such replica.
        """
        replica = self._replicas[name]
        residency, chain = replica.residency, arrival.chain
        blocks, ready_s = residency.coming(chain)
        # An engine computes at least the last token, for its output.
        hit_tokens = min(blocks * arrival.block_tokens, arrival.input_tokens - 1)
        fresh_tokens = arrival.input_tokens - hit_tokens
        start_s = max(now_s, replica.busy_until_s, ready_s)
        ready_s = start_s + replica.setup.prefill_s(fresh_tokens, hit_tokens)
        block_bytes = replica.block_bytes(arrival.block_tokens)
        residency.add(chain, block_bytes=block_bytes, ready_s=ready_s)
        chain_tokens = min(len(chain) * arrival.block_tokens, arrival.input_tokens)
        own_tokens = arrival.input_tokens - chain_tokens + arrival.output_tokens
        placement = Placement(
            number=arrival.request_id,
            replica=replica,
            chain=chain,
            block_tokens=arrival.block_tokens,
            placed_s=now_s,
            ready_s=ready_s,
            shift_s=replica.shift_s,
            input_tokens=arrival.input_tokens,
            hit_tokens=hit_tokens,
            own_bytes=round(own_tokens * replica.setup.kv_token_bytes),
        )
        replica.start(placement, busy_until_s=ready_s)
        return placement

    def first_token(self, placement: Placement, at_s: float, name: str = "") -> None:
        """Take in that a request's first token came at `at_s`: its prompt is on the replica now.

        `name` is where it ran, if not where it was sent.
        """
        replica = placement.replica
        if not placement.answered:
            placement.answered = True
            replica.first_token(placement, at_s)
        ran_on = self._replicas.get(name, replica) if name else replica
        block_bytes = ran_on.block_bytes(placement.block_tokens)
        ran_on.residency.add(placement.chain, block_bytes=block_bytes, ready_s=at_s)

    def copy_done(self, copy_id: str, now_s: float) -> Order | None:
        """Take in that an ordered copy has landed, and return it, or None if no such is open."""
        order = self.orders.close(copy_id)
        target = self._replicas.get(order.copy.target) if order is not None else None
        if order is None or target is None:
            return None
        block_bytes = target.block_bytes(order.block_tokens)
        target.residency.add(order.copy.chain, block_bytes=block_bytes, ready_s=now_s)
        return order
