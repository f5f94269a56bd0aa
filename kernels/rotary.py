"""Rotary position embeddings (Su et al., 2021, arXiv:2104.09864), the two numbers of a pair half a head apart."""

import torch
from torch import Tensor


def rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """query [1, heads, rows, dim], key [1, kv_heads, rows, dim], cos and sin [1, rows, turned] → like query and key.

    The first `turned` numbers of a head are turned, the others stay.
    """
    return _turned(query, cos[:, None], sin[:, None]), _turned(key, cos[:, None], sin[:, None])


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned = cos.shape[-1]
    x, rest = x[..., :turned], x[..., turned:]
    first, second = x.chunk(2, dim=-1)
    out = (x * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)
    return torch.cat([out, rest], dim=-1) if rest.shape[-1] else out
