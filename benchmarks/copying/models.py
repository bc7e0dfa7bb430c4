"""Blocks of real models' sizes."""

from btb.simulation.setups import SETUPS

MIB = 1 << 20
MODELS = {"70b": "70b_h100x4", "qwen3-8b": "qwen3_8b_h100x4"}


def layer_bytes(model: str, block_tokens: int, ranks: int = 1) -> list[list[int]]:
    """Return the bytes of a block by rank and layer: keys and values in 16 bits."""
    setup = SETUPS[MODELS[model]]
    one = setup.model
    token_bytes = 2 * one.kv_heads * one.head_dim * 2 // ranks
    return [[block_tokens * token_bytes] * one.layers] * ranks


def blocks_of(size_bytes: int, layers: list[list[int]]) -> int:
    """Return how many blocks are about so large together; one at least."""
    return max(1, size_bytes // sum(map(sum, layers)))
