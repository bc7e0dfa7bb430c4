"""The constants of the causal engine that are no property of a setup."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CausalParameters:
    """What the causal engine takes beside a setup.

    `chunk_tokens` is vLLM's usual `max_num_batched_tokens`. `ram_bytes` is what a node with one or
    two terabytes can give to each of its replicas, `disk_bytes` what of its NVMe. `copy_latency_s`
    covers lease, placing and commit: three round trips and their handling. Without `attention`
    prefill is linear in tokens, as in the article. Without `by_priority` requests are served in
    order of arrival, whatever their priority.
    """

    chunk_tokens: int = 2048
    ram_bytes: float = 512e9
    disk_bytes: float = 0.0
    copy_latency_s: float = 0.001
    attention: bool = True
    by_priority: bool = True
