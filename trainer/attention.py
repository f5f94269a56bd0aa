"""Attention of each sequence to itself, behind transformers' attention interface, with its derivative.

Sequences of one padded length are one call of PyTorch's fused attention, which computes each sequence and head as a
whole, so that no sequence depends on another. What the fused one lacks, soft-capped scores and attention sinks, is
computed sequence by sequence.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from loragate.trainer.lora_layer import StepContext

IMPLEMENTATION = "loragate_training"
_STATE = "_loragate_training"


def attach(module: nn.Module, context: StepContext) -> None:
    """Give an attention layer the context of its steps."""
    object.__setattr__(module, _STATE, context)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute query [1, heads, rows, dim], key and value [1, kv_heads, rows, dim] → ([1, rows, heads, dim], None)."""
    step = getattr(module, _STATE).step
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    by_row = [_sorted(x[0].transpose(0, 1), step.order) for x in (query, key, value)]
    parts, start = [], 0
    for batch in step.batches:
        stop = start + batch.count * batch.length
        q, k, v = (_by_sequence(x[start:stop], batch.count, batch.length) for x in by_row)
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        mask = _window(batch.length, sliding_window, q)
        if softcap is None and s_aux is None:
            out = _fused(q, k, v, mask, scale)
        else:
            out = torch.stack([_scored(*each, mask, scale, softcap, s_aux) for each in zip(q, k, v, strict=True)])
        parts.append(out.transpose(1, 2).flatten(0, 1))
        start = stop
    out = parts[0] if len(parts) == 1 else torch.cat(parts)
    if step.order is not None:
        rows, inverse = step.order
        out = _Permutation.apply(out, inverse, rows)  # type: ignore[no-untyped-call]
    return out[None], None


def _by_sequence(x: Tensor, count: int, length: int) -> Tensor:
    """Return rows [count · length, heads, dim] as [count, heads, length, dim]."""
    return x.view(count, length, *x.shape[1:]).transpose(1, 2)


def _sorted(x: Tensor, order: tuple[Tensor, Tensor] | None) -> Tensor:
    if order is None:
        return x.contiguous()
    sorted_: Tensor = _Permutation.apply(x, *order)  # type: ignore[no-untyped-call]
    return sorted_


class _Permutation(torch.autograd.Function):
    """Rows in another order. The derivative of `index_select` would add row by row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradient.index_select(0, inverse), None, None


def _window(length: int, window: int | None, like: Tensor) -> Tensor | None:
    """Return the mask of a sliding window that is shorter than the sequence, added to scores: 0 or −∞."""
    if window is None or window >= length:
        return None
    return _causal(length, like, window)


def _causal(length: int, like: Tensor, window: int | None = None) -> Tensor:
    place = torch.arange(length, device=like.device)
    distance = place[:, None] - place[None]
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    return torch.zeros(length, length, dtype=like.dtype, device=like.device).masked_fill_(hidden, -torch.inf)


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    width = v.shape[-1]
    if width < q.shape[-1]:
        v = F.pad(v, (0, q.shape[-1] - width))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)
    return out[..., :width]


def _scored(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, softcap: float | None, sinks: Tensor | None
) -> Tensor:
    """Compute one sequence, [heads, length, dim], with its scores as a matrix."""
    scores = torch.matmul(q, k.transpose(1, 2)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores + (_causal(q.shape[1], q) if mask is None else mask)
    if sinks is None:
        weights = scores.softmax(dim=-1, dtype=torch.float32)
    else:
        sink = sinks.view(-1, 1, 1).expand(-1, scores.shape[1], 1).to(scores.dtype)
        weights = torch.cat([scores, sink], dim=-1).softmax(dim=-1, dtype=torch.float32)[..., :-1]
    return torch.matmul(weights.to(v.dtype), v)


AttentionInterface.register(IMPLEMENTATION, packed_attention)
