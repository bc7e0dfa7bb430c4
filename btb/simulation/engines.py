"""The simulated engines by name, and the one way to run them."""

from collections.abc import Callable, Mapping, Sequence

from btb.controller import Controller
from btb.simulation.result import Result
from btb.simulation.setups import Setup
from forecasting.arrival import Arrival

Simulate = Callable[[Setup, Controller, Sequence[Arrival], int], Result]
"""setup, controller (fresh), arrivals in time order, seed for breaking ties."""

ENGINES: Mapping[str, Simulate] = {}
"""`causal`, the default: a block is held once it is computed or received. `prototype`: the
article's model, which is not causal, to reproduce its figures."""
