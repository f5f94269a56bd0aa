"""Rows of numbers in eight bits with a scale each: the largest entry of a row scales it to the range.

A product in eight bits reads such rows in place of its input's. A kernel that makes an input makes the quantized rows
in the same launch, and attaches them to the tensor. Code that changes the tensor in place detaches them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
_ATTRIBUTE = "_loragate_quantized_rows"


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Rows in e4m3 and the factors by which they are to be multiplied."""

    numbers: Tensor  # [rows, features], float8_e4m3fn
    scales: Tensor  # [rows, 1], float32


def quantize(numbers: Tensor, storage: torch.dtype) -> tuple[Tensor, Tensor]:
    """Quantize numbers [..., dim] to `storage`; return them and the scale [..., 1] to multiply by. NaN stays NaN."""
    numbers = numbers.float()
    largest = numbers.abs().amax(dim=-1, keepdim=True)
    scale = largest / largest.new_full((), LARGEST[storage])  # a GPU divides less exactly by a Python number
    scaled = numbers / torch.where(scale > 0, scale, 1.0)
    if storage == torch.int8:
        scaled = scaled.round()
    return scaled.to(storage), scale


def unfilled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return memory for the rows of x [..., features] in e4m3, and for their scales."""
    features = x.shape[-1]
    rows = x.numel() // features
    return (
        x.new_empty((rows, features), dtype=torch.float8_e4m3fn),
        x.new_empty((rows, 1), dtype=torch.float32),
    )


def attach(x: Tensor, rows: QuantizedRows) -> None:
    """Let `attached` return these rows for this tensor, as long as it lives."""
    setattr(x, _ATTRIBUTE, rows)


def attached(x: Tensor) -> QuantizedRows | None:
    """Return the quantized rows of x, if the kernel that made it made them too."""
    rows: QuantizedRows | None = getattr(x, _ATTRIBUTE, None)
    return rows


def detach(x: Tensor) -> None:
    """Forget the quantized rows of a tensor that is changed in place."""
    if attached(x) is not None:
        delattr(x, _ATTRIBUTE)
