"""Rotary position embeddings (Su et al., 2021, arXiv:2104.09864), with the two numbers of a pair half a head apart."""

import torch
from torch import Tensor


def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate query [1, heads, rows, dim] and key [1, kv_heads, rows, dim] by cos and sin [1, rows, rotated].

    The first `rotated` numbers of a head are rotated, the others are unchanged.
    """
    return _rotated(query, cos[:, None], sin[:, None]), _rotated(key, cos[:, None], sin[:, None])


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    rotated = cos.shape[-1]
    x, rest = x[..., :rotated], x[..., rotated:]
    first, second = x.chunk(2, dim=-1)
    out = (x * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)
    return torch.cat([out, rest], dim=-1) if rest.shape[-1] else out
