"""What decode and prefill attention have in common."""

from typing import Any

import torch
import triton
import triton.language as tl

from loragate.kernels.gpu.dot import widen

BLOCK_BYTES = 16384
"""Of keys at a time: more does not stay in registers."""
LEAST_ROWS = 16
"""Of a product on tensor cores."""
SHAPES = ((32, 8, 128), (32, 32, 64), (16, 8, 256), (32, 32, 96))
"""Heads of queries and of keys, and their size, as models have them: what is compiled ahead of time."""


@triton.jit
def cap(scores, softcap):  # type: ignore[no-untyped-def]
    """Kept below the cap, by the hyperbolic tangent; 0 is no cap."""
    if softcap > 0:
        scores = (2 * tl.sigmoid(2 * scores / softcap) - 1) * softcap
    return scores


@triton.jit
def soften(scores, seen, highest, weight_sum):  # type: ignore[no-untyped-def]
    """A step of the running softmax: the block's weights, what earlier sums fade by, the highest score so far and the
    new sum of weights. What is not seen weighs nothing."""
    scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(highest, tl.max(scores, axis=1))
    base = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp(scores - base[:, None])
    fade = tl.exp(highest - base)
    return weights, fade, higher, weight_sum * fade + tl.sum(weights, axis=1)


def head_constants(heads: int, kv_heads: int, key_dim: int, value_dim: int, dtype: torch.dtype) -> dict[str, Any]:
    """What a kernel is compiled for, whatever the lengths."""
    return {
        "HEADS": heads,
        "GROUP": heads // kv_heads,
        "KEY_DIM": key_dim,
        "VALUE_DIM": value_dim,
        "KEY_BLOCK": max(LEAST_ROWS, triton.next_power_of_2(key_dim)),
        "VALUE_BLOCK": max(LEAST_ROWS, triton.next_power_of_2(value_dim)),
        "WIDEN": widen(dtype),
    }


def block_rows(key_dim: int, value_dim: int, bytes_of_number: int, most: int) -> int:
    """How many keys are taken at a time."""
    widest: int = triton.next_power_of_2(max(key_dim, value_dim)) * bytes_of_number
    return max(LEAST_ROWS, min(most, BLOCK_BYTES // widest))
