"""The constants of the causal engine that are no property of a setup."""

from dataclasses import dataclass, replace
from math import exp, inf
from random import Random

from btb.errors import ConfigError
from btb.simulation.setups import Setup


@dataclass(frozen=True, slots=True)
class CausalParameters:
    """What the causal engine takes beside a setup.

    `chunk_tokens` is vLLM's usual `max_num_batched_tokens`. `ram_bytes` is what a node with one or
    two terabytes can give to each of its replicas, `disk_bytes` what of its NVMe. `copy_latency_s`
    covers lease, placing and commit: three round trips and their handling. Without `attention`
    prefill is linear in tokens, as in the article. Without `by_priority` requests are served in
    order of arrival, whatever their priority.

    The rest vary what a policy takes for granted. With `noise_sigma` the prefill of each request
    takes longer or shorter by a lognormal factor with mean 1, drawn from `noise_seed`; what a
    policy is told are estimates without it. `hbm_share` and `link_share` are what is left of the
    HBM for KV and of the NICs' bandwidth. `output_tokens` is the length of all answers, 0 that of
    the trace.

    Raises
    ------
    ConfigError
        If one of these makes no sense.
    """

    chunk_tokens: int = 2048
    ram_bytes: float = 512e9
    disk_bytes: float = 0.0
    copy_latency_s: float = 0.001
    attention: bool = True
    by_priority: bool = True
    noise_sigma: float = 0.0
    noise_seed: int = 0
    hbm_share: float = 1.0
    link_share: float = 1.0
    output_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("hbm_share", "link_share"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ConfigError(
                    f"{name} must be above 0 and at most 1, got {getattr(self, name)}"
                )
        if not (0.0 <= self.noise_sigma < inf):
            raise ConfigError(
                f"noise_sigma must be finite and not negative, got {self.noise_sigma}"
            )
        if self.output_tokens < 0:
            raise ConfigError(f"output_tokens must not be negative, got {self.output_tokens}")

    def varied(self, setup: Setup) -> Setup:
        """Return `setup` with what is left of its memory and links.

        >>> from btb.simulation.setups import SETUPS
        >>> setup = SETUPS["70b_h100x4"]
        >>> less = CausalParameters(hbm_share=0.25, link_share=0.5).varied(setup)
        >>> less.kv_capacity_bytes / setup.kv_capacity_bytes
        0.25
        >>> less.rdma_bytes_s / setup.rdma_bytes_s
        0.5
        """
        if self.hbm_share == self.link_share == 1.0:
            return setup
        kept_bytes = setup.weights_bytes + self.hbm_share * setup.kv_capacity_bytes
        gpu = replace(
            setup.gpu,
            hbm_bytes=kept_bytes / setup.gpus_per_replica,
            rdma_bytes_s=self.link_share * setup.gpu.rdma_bytes_s,
        )
        return replace(setup, gpu=gpu)

    def slowness(self, requests: int) -> list[float]:
        """Return by how much the prefill of each request takes longer than is estimated."""
        rng = Random(self.noise_seed)
        shift = self.noise_sigma * self.noise_sigma / 2
        return [exp(self.noise_sigma * rng.gauss(0.0, 1.0) - shift) for _ in range(requests)]


USUAL = CausalParameters()
"""What is simulated unless something else is asked for."""
