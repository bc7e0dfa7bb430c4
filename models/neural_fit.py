"""Fits the weights of `models.neural`: the only file that knows torch."""

from math import inf, log
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from models.neural import MEMORY, WIDTH, shapes

Array = NDArray[np.float64]

MOST_PASSES = 60
"""Passes over the samples, at most."""

PATIENCE = 8
"""Passes in a row that did not help on the samples held back, before it stops."""

BATCH = 512
"""Samples a step."""

STEP, DECAY = 2e-3, 1e-4
"""Size of a step, falling to none over the passes, and weight decay, of AdamW."""

FIRST_WEIGHTS = 0.1
"""The last layer's weights are made so much smaller at first: the mean begins as that of all."""


def fit_weights(
    table: Array,
    counts: Array,
    gaps: int,
    *,
    seed: int,
    passes: int = MOST_PASSES,
    stop_by: tuple[Array, Array] | None = None,
) -> tuple[dict[str, Array], int]:
    """Return the weights with the greatest negative binomial likelihood, and after how many passes.

    Parameters
    ----------
    table
        Scaled inputs, (samples, inputs).
    counts
        What followed each sample.
    gaps
        How many of the inputs, the first ones, are gaps, oldest first.
    seed
        For the first weights and the order of samples.
    passes
        How often to go over the samples, at most.
    stop_by
        Inputs and counts by whose likelihood the best pass is chosen; without them, the last.

    Raises
    ------
    ModuleNotFoundError
        If torch is not installed; says how to install it.
    """
    torch = _import_torch()
    # One thread, for on a busy machine several that wait for each other take longer.
    # Seeding is for all of torch, so what was there before is put back.
    with threadpool_limits(limits=1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _Network(torch, table.shape[1] - gaps, gaps, float(counts.mean()))
        return network.fit(_tensors(torch, table, counts), passes, stop_by)


class _Network:
    """The layers in torch, and the way to fit them."""

    def __init__(self, torch: Any, context: int, gaps: int, mean: float) -> None:
        nn = torch.nn
        self._torch, self._gaps = torch, gaps
        self._gru = nn.GRU(1, MEMORY, batch_first=True)
        self._first = nn.Linear(MEMORY + context, WIDTH)
        self._second = nn.Linear(WIDTH, WIDTH)
        self._out = nn.Linear(WIDTH, 2)
        self.layers = nn.ModuleList([self._gru, self._first, self._second, self._out])
        with torch.no_grad():
            self._out.weight *= FIRST_WEIGHTS
            self._out.bias[0] = log(mean)

    def forward(self, x: Any) -> Any:
        """Return logarithms of mean and shape, (samples, 2), for scaled inputs."""
        silu = self._torch.nn.functional.silu
        _, memory = self._gru(x[:, : self._gaps, None])
        z = self._torch.cat([memory[0], x[:, self._gaps :]], dim=1)
        return self._out(silu(self._second(silu(self._first(z)))))

    def fit(
        self, data: tuple[Any, Any], passes: int, stop_by: tuple[Array, Array] | None
    ) -> tuple[dict[str, Array], int]:
        torch = self._torch
        x, y = data
        optimizer = torch.optim.AdamW(self.layers.parameters(), lr=STEP, weight_decay=DECAY)
        held_back = _tensors(torch, *stop_by) if stop_by else None
        best, best_loss, best_pass = self.weights(), inf, 0
        for number in range(1, passes + 1):
            if held_back is None:
                optimizer.param_groups[0]["lr"] = STEP * (1.0 - (number - 1) / passes)
            for rows in torch.randperm(len(y)).split(BATCH):
                optimizer.zero_grad()
                self.loss(x[rows], y[rows]).backward()
                torch.nn.utils.clip_grad_norm_(self.layers.parameters(), 1.0)
                optimizer.step()
            if held_back is None:
                continue
            with torch.no_grad():
                loss = self.loss(*held_back).item()
            if loss < best_loss:
                best, best_loss, best_pass = self.weights(), loss, number
            if number - best_pass >= PATIENCE:
                break
        return (best, best_pass) if held_back else (self.weights(), passes)

    def loss(self, x: Any, y: Any) -> Any:
        """Return the mean negative log-likelihood of counts `y`."""
        torch = self._torch
        log_mean, log_shape = self.forward(x).clamp(-20.0, 13.8).unbind(dim=1)
        log_shape = log_shape.clamp(-5.0, 5.0)
        shape, log_sum = log_shape.exp(), torch.logaddexp(log_mean, log_shape)
        ways = torch.lgamma(y + shape) - torch.lgamma(shape) - torch.lgamma(y + 1.0)
        return -(ways + shape * (log_shape - log_sum) + y * (log_mean - log_sum)).mean()

    def weights(self) -> dict[str, Array]:
        """Return the weights as `models.neural.Network` takes them."""
        gru = self._gru
        tensors = {
            "gap": gru.weight_ih_l0,
            "gap_bias": gru.bias_ih_l0,
            "memory": gru.weight_hh_l0,
            "memory_bias": gru.bias_hh_l0,
            "first": self._first.weight,
            "first_bias": self._first.bias,
            "second": self._second.weight,
            "second_bias": self._second.bias,
            "out": self._out.weight,
            "out_bias": self._out.bias,
        }
        context = self._first.in_features - MEMORY
        return {
            name: tensors[name].detach().numpy().astype(np.float64).reshape(shape)
            for name, shape in shapes(context).items()
        }


def _tensors(torch: Any, table: Array, counts: Array) -> tuple[Any, Any]:
    return (
        torch.tensor(table, dtype=torch.float32),
        torch.tensor(counts, dtype=torch.float32),
    )


def _import_torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "fitting the neural learner takes torch: pip install 'bite-the-bullet[torch]'"
        ) from None
    return torch
