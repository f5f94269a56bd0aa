"""Parts that the decode and prefill attention kernels share."""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.dot import widen
from loragate.kernels.gpu.quantization import E4M3, E4M3_BITS, INT8, PLAIN, as_stored, format_of, unscaled
from loragate.kernels.gpu.variant import POINTERS

if TYPE_CHECKING:
    from loragate.kernels.kv_cache import LayerCache

BLOCK_BYTES = 16384
"""Bytes of keys in a block; larger blocks do not stay in registers."""
MIN_ROWS = 16
"""Minimum rows of a product on tensor cores."""
PAGE = 64
"""Places per page in the variants that are compiled ahead of time."""
_SHAPES = ((32, 8, 128), (32, 32, 64), (16, 8, 256), (32, 32, 96))
_PLAIN = tl.constexpr(PLAIN)
_EIGHT_BITS = (torch.int8, INT8), (torch.float8_e4m3fn, E4M3), (torch.float8_e4m3fn, E4M3_BITS)
_EXTREMES = ((32, 8, 128), (16, 8, 256))


class Case(NamedTuple):
    """A variant to compile ahead of time: head counts and sizes that models have, and the dtype of the cache."""

    heads: int
    kv_heads: int
    dim: int
    dtype: torch.dtype
    storage: torch.dtype
    format: int = PLAIN

    def __str__(self) -> str:
        kept = "" if self.storage == self.dtype else f" over {self.storage}"
        bits = " by its bits" if self.format == E4M3_BITS else ""
        return f"{self.dtype}{kept}{bits} {self.heads}/{self.kv_heads} heads of {self.dim}".replace("torch.", "")

    @property
    def min_arch(self) -> int:
        return 89 if self.format == E4M3 else 0

    @property
    def pointers(self) -> dict[str, str]:
        """Triton's types of the queries and of the cache."""
        kept = dict.fromkeys(("keys", "values"), POINTERS[_name(self.storage)])
        scales = dict.fromkeys(("key_scales", "value_scales"), POINTERS["float32"])
        return {"query": POINTERS[_name(self.dtype)], **kept, **scales}


CASES = (
    *(Case(*shape, torch.bfloat16, torch.bfloat16) for shape in _SHAPES),
    Case(*_SHAPES[0], torch.float16, torch.float16),  # compiles like bfloat16
    *(Case(*shape, torch.float32, torch.float32) for shape in _EXTREMES),
    *(Case(*shape, torch.bfloat16, *storage) for storage in _EIGHT_BITS for shape in _EXTREMES),
)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@triton.jit
def soft_cap(scores, softcap):  # type: ignore[no-untyped-def]
    """Limit scores softly by the hyperbolic tangent; a softcap of 0 means no limit."""
    if softcap > 0:
        scores = (2 * tl.sigmoid(2 * scores / softcap) - 1) * softcap
    return scores


@triton.jit
def online_softmax_step(scores, seen, highest, weight_sum):  # type: ignore[no-untyped-def]
    """Perform one step of the running softmax. Scores that are not `seen` get weight zero.

    Returns the block's weights, the factor by which earlier sums shrink, the highest score so far and the new sum of
    weights.
    """
    scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(highest, tl.max(scores, axis=1))
    base = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp(scores - base[:, None])
    rescale = tl.exp(highest - base)
    return weights, rescale, higher, weight_sum * rescale + tl.sum(weights, axis=1)


@triton.jit
def places_at(table, start, there, PAGE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the cache places of a block of positions of a sequence, by its page table.

    `start` is a multiple of BLOCK. Where `there` is false, the place may be any.
    """
    position = start + tl.arange(0, BLOCK)
    if PAGE % BLOCK == 0:
        return tl.load(table + start // PAGE).to(tl.int32) * PAGE + (start % PAGE + tl.arange(0, BLOCK))
    return tl.load(table + position // PAGE, mask=there, other=0).to(tl.int32) * PAGE + position % PAGE


@triton.jit
def read_cache(numbers, place, column, there, DIM: tl.constexpr, FORMAT: tl.constexpr, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load one head's keys or values as `DTYPE`, without their scales where the cache holds eight-bit numbers.

    `place` and `there`, of one shape, are broadcast against `column`; where `there` is false the result is 0.
    """
    found = tl.load(numbers + place.to(tl.int64) * DIM + column, mask=there & (column < DIM), other=0)
    if FORMAT != _PLAIN:
        found = unscaled(found, FORMAT, DTYPE)
    return found


class Stored(NamedTuple):
    """A layer's cache in the form in which kernels receive it."""

    keys: Tensor  # [kv_heads, places, key_dim]
    values: Tensor  # [kv_heads, places, value_dim]
    key_scales: Tensor | None  # [kv_heads, places]
    value_scales: Tensor | None
    format: int  # see `quantization.format_of`

    @classmethod
    def from_cache(cls, cache: "LayerCache") -> "Stored":
        if cache.scales is None:
            return cls(cache.keys, cache.values, None, None, PLAIN)
        scales = cache.scales
        format_ = format_of(cache.keys.dtype, cache.keys.device)
        return cls(as_stored(cache.keys), as_stored(cache.values), scales[0], scales[1], format_)


def head_constants(
    heads: int, kv_heads: int, key_dim: int, value_dim: int, dtype: torch.dtype, format_: int
) -> dict[str, Any]:
    """Return the constants that a kernel is compiled for, which do not depend on lengths."""
    return {
        "FORMAT": format_,
        "HEADS": heads,
        "GROUP": heads // kv_heads,
        "KEY_DIM": key_dim,
        "VALUE_DIM": value_dim,
        "KEY_BLOCK": max(MIN_ROWS, triton.next_power_of_2(key_dim)),
        "VALUE_BLOCK": max(MIN_ROWS, triton.next_power_of_2(value_dim)),
        "WIDEN": widen(dtype if format_ == PLAIN else torch.bfloat16),
    }


def block_rows(key_dim: int, value_dim: int, bytes_of_number: int, max_rows: int) -> int:
    """Return how many keys a block has."""
    widest: int = triton.next_power_of_2(max(key_dim, value_dim)) * bytes_of_number
    return max(MIN_ROWS, min(max_rows, BLOCK_BYTES // widest))
