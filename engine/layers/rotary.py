"""Fusion of the model's rotary embeddings into one launch per layer on a GPU.

Model families call a function of their module for it. If that function computes the same as ours, to the last bit, the
layer's `forward` is bound to ours. The module itself is not changed, because other models may use it.

If a layer passes what it rotated straight on to attention, nothing is launched before: the launch that writes keys and
values to the cache rotates as well.
"""

from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from loragate.engine.layers.attention import Rotation, attention_state
from loragate.kernels import gpu, rotary

if gpu.available():
    from loragate.kernels.gpu import rotary as kernel

_NAME = "apply_rotary_pos_emb"
_DIM = 8


def fuse(attention: nn.Module, *, passes_on: bool = False) -> bool:
    """Make the layer rotate its queries and keys in one launch, if it does so in a known way; return whether it does.

    If it `passes_on` what it rotated (see `model.tracing_rotary`), that is the launch that writes to the cache.
    """
    function = rotation_of(attention)
    if not _is_known(function):
        return False
    bind(attention, partial(_rotate_later, attention) if passes_on else _rotate)
    return True


def rotation_of(attention: nn.Module) -> Callable[..., Any] | None:
    """Return the function by which the layer's `forward` rotates queries and keys, or None."""
    forward = type(attention).forward
    if not isinstance(forward, FunctionType) or _NAME not in forward.__code__.co_names:
        return None
    return forward.__globals__.get(_NAME)


def bind(attention: nn.Module, function: Callable[..., Any]) -> None:
    """Make the layer's `forward` rotate by another function."""
    forward = type(attention).forward
    names = {**forward.__globals__, _NAME: function}
    bound = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    bound.__kwdefaults__ = forward.__kwdefaults__
    attention.forward = MethodType(bound, attention)


def host_reads(config: PreTrainedConfig) -> str | None:
    """Return what the model's rotary embeddings read on the host in every step, so that no step can be captured, or
    None.

    transformers recomputes the frequencies of "dynamic" embeddings when a position lies beyond all earlier ones
    (`modeling_rope_utils.dynamic_rope_update`).
    """
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    each = [rope, *(part for part in rope.values() if isinstance(part, dict))]  # some models have one per kind of layer
    if any("dynamic" in str(part.get("rope_type", part.get("type"))) for part in each):
        return "rope_type dynamic looks at positions on the host"
    return None


def _rotate(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return kernel.rotate(query, key, cos, sin)


def _rotate_later(attention: nn.Module, query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return memory that the layer's attention fills."""
    out = kernel.unfilled(query, key)
    attention_state(attention).rotation = Rotation((query, key, cos, sin), out)
    return out


@torch.inference_mode()
def _is_known(function: Callable[..., Any] | None) -> bool:
    """Return whether the function computes the same as ours, for any rotated part of a head, in both precisions."""
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
