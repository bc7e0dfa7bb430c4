"""The simulated engines by name, and the one way to run them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from btb.controller import Controller
from btb.simulation import causal, prototype
from btb.simulation.result import Result
from btb.simulation.setups import Setup
from forecasting.arrival import Arrival


@dataclass(frozen=True, slots=True)
class Engine:
    """`simulate` runs a fresh controller on arrivals in time order.

    `assumptions` are printed beside its results. `policies` names the policies that stand in for
    others here: the article's engine runs the article's routers.
    """

    simulate: Callable[[Setup, Controller, Sequence[Arrival]], Result]
    assumptions: tuple[str, ...]
    policies: Mapping[str, str]


ENGINES: Mapping[str, Engine] = {
    "causal": Engine(causal.simulate_causal, causal.ASSUMPTIONS, {}),
    "prototype": Engine(
        prototype.simulate_prototype,
        prototype.ASSUMPTIONS,
        {"cache_aware": "article_cache_aware", "early_rdma": "article_early_rdma"},
    ),
}
"""`causal`, the default: a block is held once it is computed or received. `prototype`: the
article's model, which is not causal, to reproduce its figures."""
