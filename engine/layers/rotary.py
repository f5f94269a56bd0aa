"""The model's rotary embeddings, which take one launch a layer on a GPU.

Families call a function of their module for it. Where that function gives what ours gives, to the last bit, the
layer's `forward` is bound to ours; the module itself is left alone, for other models may be made of it.
"""

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from loragate.kernels import rotary
from loragate.kernels.gpu import rotary as kernel

_NAME = "apply_rotary_pos_emb"
_DIM = 8


def fuse(attention: nn.Module) -> bool:
    """Have the layer turn its queries and keys in one launch, if it does that in the way that is known."""
    forward = type(attention).forward
    if not isinstance(forward, FunctionType) or _NAME not in forward.__code__.co_names:
        return False
    if not _is_known(forward.__globals__.get(_NAME)):
        return False
    names = {**forward.__globals__, _NAME: _rotate}
    bound = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    bound.__kwdefaults__ = forward.__kwdefaults__
    attention.forward = MethodType(bound, attention)
    return True


def _rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return kernel.rotate(query, key, cos, sin)


@torch.inference_mode()
def _is_known(function: Callable[..., Any] | None) -> bool:
    """Whether the function computes what ours does, whatever part of a head is turned, in both precisions."""
    if function is None:
        return False
    random = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        query, key = (torch.randn(1, heads, 5, _DIM, generator=random).to(dtype) for heads in (4, 2))
        angle = torch.rand(1, 5, _DIM, generator=random) * 100
        given = (query, key, angle.cos().to(dtype), angle.sin().to(dtype))
        try:
            found = function(*given)
        except (RuntimeError, TypeError):
            return False
        if not all(torch.equal(a, b) for a, b in zip(found, rotary.rotate(*given), strict=True)):
            return False
    return True
