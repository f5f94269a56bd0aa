"""Writing of new keys and values to their places in the cache, quantized on the way where the cache is.

A program handles the key and the value of one token and one head, with one launch per layer (vLLM's `reshape_and_cache`
does the same for its layout; Kwon et al., 2023, arXiv:2309.06180).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.attention import Stored
from loragate.kernels.gpu.ops import no_output, operator
from loragate.kernels.gpu.quantization import E4M3, INT8, PLAIN, store_quantized
from loragate.kernels.gpu.variant import POINTERS, Variant

if TYPE_CHECKING:
    from loragate.kernels.kv_cache import LayerCache

_PLAIN = tl.constexpr(PLAIN)


@triton.jit
def write_kernel(  # type: ignore[no-untyped-def]
    new_keys,  # [kv_heads, rows, key_dim]
    new_values,  # [kv_heads, rows, value_dim]
    targets,  # [rows]
    keys,  # [kv_heads, places, key_dim]
    values,
    key_scales,  # [kv_heads, places]
    value_scales,
    places,
    key_head_stride,
    key_row_stride,
    value_head_stride,
    value_row_stride,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    FORMAT: tl.constexpr,
):
    row, head = tl.program_id(0).to(tl.int64), (tl.program_id(1) + tl.arange(0, 1)).to(tl.int64)[:, None]
    at = head * places + tl.load(targets + row)
    there = head >= 0  # always
    key = load_heads(new_keys + head * key_head_stride + row * key_row_stride, there, KEY_DIM)
    store_heads(key, keys, key_scales, at, there, KEY_DIM, FORMAT)
    value = load_heads(new_values + head * value_head_stride + row * value_row_stride, there, VALUE_DIM)
    store_heads(value, values, value_scales, at, there, VALUE_DIM, FORMAT)


@triton.jit
def load_heads(sources, there, DIM: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the numbers of some heads [heads, DIM, rounded up to a power of two] from `sources` [heads, 1]."""
    d = tl.arange(0, triton.next_power_of_2(DIM))[None]
    return tl.load(sources + d, mask=there & (d < DIM), other=0.0)


@triton.jit
def store_heads(numbers, target, scales, at, there, DIM: tl.constexpr, FORMAT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store the numbers of some heads at the places `at` [heads, 1] of the cache, where `there`."""
    d = tl.arange(0, triton.next_power_of_2(DIM))[None]
    if FORMAT == _PLAIN:
        tl.store(target + at * DIM + d, numbers, mask=there & (d < DIM))
    else:
        store_quantized(numbers, target + at * DIM + d, scales + at, there, there & (d < DIM), FORMAT)


def write(cache: "LayerCache", targets: Tensor, keys: Tensor, values: Tensor) -> None:
    """Store keys and values [kv_heads, rows, dim] at `targets` [rows], as `LayerCache.write` does."""
    _store(keys, values, targets, *Stored.from_cache(cache))


@operator(
    "write_cache(Tensor new_keys, Tensor new_values, Tensor targets, Tensor(a!) keys, Tensor(b!) values, "
    "Tensor(c!)? key_scales, Tensor(d!)? value_scales, int format) -> ()",
    fake=no_output,
)
def _store(
    new_keys: Tensor,
    new_values: Tensor,
    targets: Tensor,
    keys: Tensor,
    values: Tensor,
    key_scales: Tensor | None,
    value_scales: Tensor | None,
    format_: int,
) -> None:
    assert new_keys.stride(2) == new_values.stride(2) == 1
    kv_heads, rows, key_dim = new_keys.shape
    unread = keys  # placeholder where there are no scales
    write_kernel[(rows, kv_heads)](
        *(new_keys, new_values, targets, keys, values),
        *(unread if key_scales is None else key_scales, unread if value_scales is None else value_scales),
        *(keys.shape[1], *new_keys.stride()[:2], *new_values.stride()[:2]),
        KEY_DIM=key_dim,
        VALUE_DIM=new_values.shape[2],
        FORMAT=format_,
        num_warps=1,
    )


def variants() -> Iterator[Variant]:
    """Return variants for one token's keys and values of 8 heads of 128 in 16 sequences."""
    rows, kv_heads, dim = 16, 8, 128
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        name = str(dtype).removeprefix("torch.")
        for storage, format_ in ((dtype, PLAIN), (torch.int8, INT8), (torch.float8_e4m3fn, E4M3)):
            kept = str(storage).removeprefix("torch.")
            new = dict.fromkeys(("new_keys", "new_values"), POINTERS[name])
            held = dict.fromkeys(("keys", "values"), POINTERS[kept])
            scales = dict.fromkeys(("key_scales", "value_scales"), POINTERS["float32"])
            strides = ("key_head_stride", "key_row_stride", "value_head_stride", "value_row_stride")
            yield Variant(
                f"write {name} as {kept}",
                write_kernel,
                new | {"targets": POINTERS["int64"]} | held | scales | dict.fromkeys(("places", *strides), "i32"),
                {"KEY_DIM": dim, "VALUE_DIM": dim, "FORMAT": format_},
                read_bytes=2 * rows * kv_heads * dim * (dtype.itemsize + storage.itemsize),
                flops=0 if storage == dtype else 6 * rows * kv_heads * dim,
                warps=1,
                aligned=frozenset({*new, *held, *strides}),
            )
