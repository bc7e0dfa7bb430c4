"""Models on hardware: how fast a replica computes, decodes and moves KV.

Datasheet figures are dense bf16 without sparsity, per GPU; the host link is what PCIe gives in
practice, RDMA one NIC a GPU (400 or 800 Gbit/s), NVMe one pool a node. Models, setups and their
constants are the article's (https://github.com/jwlaboratory/bite-the-bullet), which counts KV as if
attention were grouped-query everywhere; a model that keeps it compressed, as Kimi K2 does, has
less. Widths of attention are added: query heads x head dimension of models of that size.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator: peak rates and sizes, from its datasheet."""

    name: str
    flops: float
    hbm_bytes_s: float
    hbm_bytes: float
    host_bytes_s: float
    rdma_bytes_s: float
    disk_bytes_s: float


@dataclass(frozen=True, slots=True)
class Model:
    """What a model needs to be computed and kept.

    `weight_bytes` and `kv_bytes` are bytes a number. The article quarters the KV together with int4
    weights, which no engine does: it is `article_kv_bytes`, used by its prototype engine only.
    `attention_dim` is the width of all query heads together, `query heads x head dimension`.
    """

    name: str
    params: float
    active_params: float
    weight_bytes: float
    layers: int
    kv_heads: int
    head_dim: int
    attention_dim: int
    kv_bytes: float
    article_kv_bytes: float


@dataclass(frozen=True, slots=True)
class Setup:
    """Several replicas of one model, each on some GPUs in tensor parallel.

    `mfu` and `mbu` are the shares of peak compute (prefill) and of peak HBM bandwidth (decode)
    that are reached; 0.5 and 0.8 are the article's.

    Examples
    --------
    A token of Llama-3.3-70B in 16 bits takes 320 KiB; 8,192 of them 0.58 s of prefill on 4 H100
    without the attention term, and 13 ms over RDMA:

    >>> setup = SETUPS["70b_h100x4"]
    >>> setup.kv_token_bytes / 2**10
    320.0
    >>> round(setup.prefill_s(8192, attention=False), 3), round(setup.prefill_s(8192), 3)
    (0.585, 0.629)
    >>> round(8192 * setup.kv_token_bytes / setup.rdma_bytes_s, 4)
    0.0134
    """

    name: str
    model: Model
    gpu: Gpu
    gpus_per_replica: int
    replicas: int = 4
    mfu: float = 0.5
    mbu: float = 0.8

    def __post_init__(self) -> None:
        if self.kv_capacity_bytes <= 0:
            raise ValueError(
                f"{self.name}: {self.weights_bytes / 1e9:.0f} GB of weights leave no KV room in "
                f"{self.gpus_per_replica} x {self.gpu.hbm_bytes / 1e9:.0f} GB of HBM"
            )

    @property
    def flops(self) -> float:
        """Peak compute of a replica, in flop/s."""
        return self.gpu.flops * self.gpus_per_replica

    @property
    def hbm_bytes_s(self) -> float:
        """Peak HBM bandwidth of a replica."""
        return self.gpu.hbm_bytes_s * self.gpus_per_replica

    @property
    def host_bytes_s(self) -> float:
        """Bandwidth between a replica's host memory and its HBM."""
        return self.gpu.host_bytes_s * self.gpus_per_replica

    @property
    def rdma_bytes_s(self) -> float:
        """Bandwidth of a replica's NICs together, each way."""
        return self.gpu.rdma_bytes_s * self.gpus_per_replica

    @property
    def disk_bytes_s(self) -> float:
        """Read bandwidth of a node's NVMe pool: shared, not multiplied by GPUs."""
        return self.gpu.disk_bytes_s

    @property
    def weights_bytes(self) -> float:
        """Bytes of weights a replica keeps in HBM."""
        return self.model.params * self.model.weight_bytes

    @property
    def kv_capacity_bytes(self) -> float:
        """HBM of a replica left for KV."""
        return self.gpu.hbm_bytes * self.gpus_per_replica - self.weights_bytes

    @property
    def kv_token_bytes(self) -> float:
        """KV bytes of a token: a key and a value vector per layer and KV head."""
        model = self.model
        return 2 * model.layers * model.kv_heads * model.head_dim * model.kv_bytes

    @property
    def article_kv_token_bytes(self) -> float:
        """KV bytes of a token in the article's model."""
        return self.kv_token_bytes / self.model.kv_bytes * self.model.article_kv_bytes

    def prefill_s(self, tokens: int, context_tokens: int = 0, *, attention: bool = True) -> float:
        """Return the seconds to compute `tokens` after `context_tokens` that are there already.

        Compute-bound: 2 flops per active parameter and token, and for causal attention
        4 x layers x width flops for each pair of a token and one before it (Kaplan et al. 2020,
        section 2.1, with both the score and the value product).
        """
        work = 2 * self.model.active_params * tokens
        if attention:
            pairs = tokens * (context_tokens + tokens / 2)
            work += 4 * self.model.layers * self.model.attention_dim * pairs
        return work / (self.flops * self.mfu)

    def decode_step_s(self, context_tokens: float, *, kv_token_bytes: float | None = None) -> float:
        """Return the seconds of one decode step for a batch with `context_tokens` of KV in all.

        Memory-bound: each step reads the active weights once, and the KV of every sequence.
        """
        kv_bytes = (self.kv_token_bytes if kv_token_bytes is None else kv_token_bytes) * (
            context_tokens
        )
        weights = self.model.active_params * self.model.weight_bytes
        return (weights + kv_bytes) / (self.hbm_bytes_s * self.mbu)


GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("A100", 312e12, 2.0e12, 80e9, 25e9, 25e9, 5e9),
        Gpu("H100", 989e12, 3.35e12, 80e9, 55e9, 50e9, 7e9),
        Gpu("H200", 989e12, 4.8e12, 141e9, 55e9, 50e9, 7e9),
        Gpu("B200", 2250e12, 8.0e12, 192e9, 60e9, 100e9, 7e9),
        Gpu("B300", 2250e12, 8.0e12, 288e9, 120e9, 100e9, 7e9),
        Gpu("MI300X", 1307e12, 5.3e12, 192e9, 55e9, 50e9, 7e9),
    )
}

MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model("70b", 70.6e9, 70.6e9, 2.0, 80, 8, 128, 64 * 128, 2.0, 2.0),
        Model("qwen3_8b", 8.19e9, 8.19e9, 2.0, 36, 8, 128, 32 * 128, 2.0, 2.0),
        Model("glm45", 355e9, 32e9, 0.5, 92, 4, 128, 96 * 128, 2.0, 0.5),
        Model("glm52", 744e9, 40e9, 0.5, 78, 1, 288, 64 * 256, 2.0, 0.5),
        Model("kimi_k2", 1e12, 32e9, 0.5, 61, 8, 128, 64 * 160, 2.0, 0.5),
        Model("dense1t", 1e12, 1e12, 1.0, 120, 8, 128, 128 * 128, 1.0, 1.0),
    )
}

ARTICLE_SETUPS = (
    "70b_h100x4",
    "qwen3_8b_h100x4",
    "glm45_h100x4",
    "glm52_h100x8",
    "kimi_k2_h100x8",
    "dense1t_b300x4",
)
"""The six setups of the article's table."""

SETUPS: Mapping[str, Setup] = {
    f"{model}_{gpu.lower()}x{count}": Setup(
        f"{model}_{gpu.lower()}x{count}", MODELS[model], GPUS[gpu], count
    )
    for model, gpu, count in (
        ("70b", "H100", 4),
        ("qwen3_8b", "H100", 4),
        ("glm45", "H100", 4),
        ("glm52", "H100", 8),
        ("kimi_k2", "H100", 8),
        ("dense1t", "B300", 4),
        ("70b", "A100", 4),
        ("70b", "H200", 4),
        ("70b", "B200", 4),
        ("70b", "MI300X", 4),
        ("glm45", "H200", 4),
        ("kimi_k2", "B200", 8),
    )
}
"""Setups by name. A name is model, GPU and GPUs a replica; each has four replicas."""
