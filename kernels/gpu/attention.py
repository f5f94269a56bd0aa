"""What decode and prefill attention have in common."""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.dot import widen
from loragate.kernels.gpu.quantization import FORMATS, PLAIN, as_stored, expanded
from loragate.kernels.gpu.variant import POINTERS

if TYPE_CHECKING:
    from loragate.kernels.kv_cache import LayerCache

BLOCK_BYTES = 16384
"""Of keys at a time: more does not stay in registers."""
LEAST_ROWS = 16
"""Of a product on tensor cores."""
PAGE = 16
"""Places of a page, in what is compiled ahead of time."""
_SHAPES = ((32, 8, 128), (32, 32, 64), (16, 8, 256), (32, 32, 96))
_PLAIN = tl.constexpr(PLAIN)
_EXTREMES = ((32, 8, 128), (16, 8, 256))


class Case(NamedTuple):
    """What is compiled ahead of time: heads as models have them, and what the cache keeps."""

    heads: int
    kv_heads: int
    dim: int
    dtype: torch.dtype
    storage: torch.dtype

    def __str__(self) -> str:
        kept = "" if self.storage == self.dtype else f" over {self.storage}"
        return f"{self.dtype}{kept} {self.heads}/{self.kv_heads} heads of {self.dim}".replace("torch.", "")

    @property
    def format(self) -> int:
        return FORMATS.get(self.storage, PLAIN)

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
    *(Case(*shape, torch.bfloat16, storage) for storage in FORMATS for shape in _EXTREMES),
)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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


@triton.jit
def places_of(table, position, there, PAGE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where positions of a sequence lie in the cache, by its table of pages; what is not there is place 0."""
    page = tl.load(table + position // PAGE, mask=there, other=0)
    return tl.where(there, page * PAGE + position % PAGE, 0)


@triton.jit
def read_cache(numbers, scales, place, column, there, DIM: tl.constexpr, FORMAT: tl.constexpr, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """One head's keys or values, expanded to `DTYPE` where they are kept in eight bits. `place` and `there`, of one
    shape, are broadcast against `column`; what is not there is 0."""
    found = tl.load(numbers + place * DIM + column, mask=there & (column < DIM), other=0)
    if FORMAT != _PLAIN:
        found = expanded(found, tl.load(scales + place, mask=there, other=0.0), FORMAT, DTYPE)
    return found


class Stored(NamedTuple):
    """A layer's cache as kernels are handed it."""

    keys: Tensor  # [kv_heads, places, key_dim]
    values: Tensor  # [kv_heads, places, value_dim]
    key_scales: Tensor | None  # [kv_heads, places]
    value_scales: Tensor | None
    format: int  # see `eight_bits`

    @classmethod
    def of(cls, cache: "LayerCache") -> "Stored":
        if cache.scales is None:
            return cls(cache.keys, cache.values, None, None, PLAIN)
        scales = cache.scales
        format_ = FORMATS[cache.keys.dtype]
        return cls(as_stored(cache.keys), as_stored(cache.values), scales[0], scales[1], format_)


def head_constants(
    heads: int, kv_heads: int, key_dim: int, value_dim: int, dtype: torch.dtype, format_: int
) -> dict[str, Any]:
    """What a kernel is compiled for, whatever the lengths."""
    return {
        "FORMAT": format_,
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
