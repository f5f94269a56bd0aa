"""Sampling with temperature, top_p and min_p, without sorting the vocabulary; a program handles one row.

A sort of 64 rows of 128k logits takes as long as a decode step. The set of tokens that top_p keeps is also defined by
its lowest logit: the smallest one for which the tokens above it have less than top_p of the whole. Bisection over the
logits finds it in some 30 passes over a row, which the L2 cache serves (FlashInfer samples in this way, too: Ye et al.,
2025, arXiv:2501.01005).

Probabilities are integers, relative to the largest. Their sums do not depend on the order of addition: the kept tokens
and the drawn one are the same in any batch, on any GPU. Tokens of equal logits are all kept or none is.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from loragate.kernels.gpu.ops import operator
from loragate.kernels.gpu.variant import POINTERS, Variant

_BLOCK, _WARPS = 4096, 16
_ONE = tl.constexpr(float(1 << 40))  # the largest probability; a sum over any vocabulary stays below 2^63
_ZERO_BELOW = tl.constexpr(28.0)  # exp(-28) · 2^40 is less than one
_LOWEST = tl.constexpr(-(1 << 31))


@triton.jit(do_not_specialize=["vocabulary"])
def draw_kernel(  # type: ignore[no-untyped-def]
    logits,  # [rows, vocabulary], float32
    settings,  # [rows, 4], float64: temperature, top_p, min_p and a number in [0, 1)
    tokens,  # [rows], int64
    lowest,  # [rows], float32: the lowest logit that is kept
    vocabulary,
    row_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    source = logits + row * row_stride
    temperature = tl.load(settings + row * 4).to(tl.float32)
    top_p, min_p, at = (
        tl.load(settings + row * 4 + 1),
        tl.load(settings + row * 4 + 2),
        tl.load(settings + row * 4 + 3),
    )
    highest = tl.full((), float("-inf"), dtype=tl.float32)
    for start in range(0, vocabulary, BLOCK):
        highest = tl.maximum(highest, tl.max(_logits(source, start, vocabulary, BLOCK)))
    whole = _mass_from(source, highest, temperature, _LOWEST, vocabulary, BLOCK).to(tl.float64)
    # Not all of those above `below` are kept; all of those above `kept` are.
    kept = _key(highest).to(tl.int64)
    below = _key(highest - _ZERO_BELOW * temperature).to(tl.int64) - 1
    if top_p >= 1:
        kept = below + 1
    while kept - below > 1:
        middle = (kept + below) >> 1
        if _mass_from(source, highest, temperature, middle + 1, vocabulary, BLOCK).to(tl.float64) < top_p * whole:
            kept = middle
        else:
            below = middle
    total, least = tl.full((), 0, dtype=tl.int64), tl.full((), float("inf"), dtype=tl.float32)
    for start in range(0, vocabulary, BLOCK):
        x = _logits(source, start, vocabulary, BLOCK)
        mass = _kept_mass(x, highest, temperature, kept, min_p)
        total += tl.sum(mass)
        least = tl.minimum(least, tl.min(tl.where(mass > 0, x, float("inf"))))
    target = tl.minimum((at * total.to(tl.float64)).to(tl.int64), total - 1)
    before, token = tl.full((), 0, dtype=tl.int64), tl.full((), 0, dtype=tl.int64)
    for start in range(0, vocabulary, BLOCK):  # the drawn token follows all those whose sum does not exceed the target
        mass = _kept_mass(_logits(source, start, vocabulary, BLOCK), highest, temperature, kept, min_p)
        token += tl.sum((before + tl.cumsum(mass) <= target).to(tl.int64))
        before += tl.sum(mass)
    tl.store(tokens + row, tl.minimum(token, vocabulary - 1))
    tl.store(lowest + row, least)


@triton.jit
def _logits(source, start, vocabulary, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load a block of a row; negative zeros become positive ones, which are equal to them."""
    place = start + tl.arange(0, BLOCK)
    return tl.load(source + place, mask=place < vocabulary, other=float("-inf")) + 0.0


@triton.jit
def _key(x):  # type: ignore[no-untyped-def]
    """Return integers in the order of some float32 numbers."""
    bits = x.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _mass(x, highest, temperature):  # type: ignore[no-untyped-def]
    return (tl.exp((x - highest) / temperature) * _ONE).to(tl.int64)


@triton.jit
def _mass_from(source, highest, temperature, key, vocabulary, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the sum of the row's probabilities of logits whose key is at least `key`."""
    total = tl.full((), 0, dtype=tl.int64)
    for start in range(0, vocabulary, BLOCK):
        x = _logits(source, start, vocabulary, BLOCK)
        total += tl.sum(tl.where(_key(x) >= key, _mass(x, highest, temperature), 0))
    return total


@triton.jit
def _kept_mass(x, highest, temperature, key, min_p):  # type: ignore[no-untyped-def]
    mass = _mass(x, highest, temperature)
    return tl.where((_key(x) >= key) & (mass.to(tl.float64) >= min_p * _ONE), mass, 0)


def draw(logits: Tensor, settings: Tensor) -> tuple[Tensor, Tensor]:
    """Sample a token for each row of logits [rows, vocabulary], float32.

    settings [rows, 4], float64: temperature, top_p, min_p, and the number in [0, 1) at which the distribution, in the
    vocabulary's order, is inverted. Returns the tokens, and the lowest logit of each row that could have been drawn.
    For logits that are not finite, the token is any one.
    """
    tokens, lowest = _draw(logits, settings)
    return tokens, lowest


def _results(logits: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
    rows = logits.shape[:1]
    return logits.new_empty(rows, dtype=torch.int64), logits.new_empty(rows)


@operator("draw(Tensor logits, Tensor settings) -> (Tensor, Tensor)", fake=_results)
def _draw(logits: Tensor, settings: Tensor) -> tuple[Tensor, Tensor]:
    assert logits.dtype == torch.float32
    assert settings.dtype == torch.float64
    assert logits.stride(1) == 1
    assert settings.is_contiguous()
    tokens, lowest = _results(logits)
    if tokens.shape[0]:
        draw_kernel[tokens.shape](
            *(logits, settings, tokens, lowest, logits.shape[1], logits.stride(0)), BLOCK=_BLOCK, num_warps=_WARPS
        )
    return tokens, lowest


def variants() -> Iterator[Variant]:
    """Return the variant for 64 rows of Llama 3's vocabulary; its rows stay in the L2 cache."""
    rows, vocabulary = 64, 128256
    yield Variant(
        f"draw from {vocabulary} tokens",
        draw_kernel,
        {"logits": POINTERS["float32"], "settings": POINTERS["float64"], "tokens": POINTERS["int64"]}
        | {"lowest": POINTERS["float32"], "vocabulary": "i32", "row_stride": "i32"},
        {"BLOCK": _BLOCK},
        read_bytes=4 * rows * vocabulary,
        flops=0,
        warps=_WARPS,
        aligned=frozenset({"logits", "settings", "tokens", "lowest", "vocabulary", "row_stride"}),
    )
