"""Attention of each sequence to itself, behind transformers' attention interface, with its derivative.

Sequences of one padded length are computed together, as batched products of tiles of at most 128 queries and 128 keys.
The library computes each product of such a batch as a whole, so that no sequence depends on another, nor on the number
of threads; PyTorch's fused attention does so in its forward pass only. The backward pass computes the softmax again
(Dao et al., 2022, arXiv:2205.14135, section 3.1), so memory grows with a sequence's length and not with its square.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from loragate.trainer.lora_layer import StepContext
from loragate.trainer.packing import SequenceBatch, Step

IMPLEMENTATION = "loragate_training"
_STATE = "_loragate_training"
_TILE = 128


def attach(module: nn.Module, context: StepContext) -> None:
    """Give an attention layer the context of its steps."""
    object.__setattr__(module, _STATE, context)


@dataclass(frozen=True, slots=True)
class _Options:
    scale: float
    window: int | None
    softcap: float | None
    sinks: Tensor | None  # [heads]


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
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    options = _Options(scale, sliding_window, softcap, None if s_aux is None else s_aux.detach().float())
    rows = (x[0].transpose(0, 1) for x in (query, key, value))
    out: Tensor = _Attention.apply(*rows, getattr(module, _STATE).step, options)  # type: ignore[no-untyped-call]
    return out[None], None


class _Attention(torch.autograd.Function):
    """Over rows: query [rows, heads, dim], key and value [rows, kv_heads, dim]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, step: Step, options: _Options) -> Tensor:
        parts = []
        for batch, q_, k_, v_ in _batches(step, q, k, v):
            parts.append(_by_row(_forward(q_, k_, v_, options), batch))
        out = _unsorted(parts, step).to(q.dtype)
        ctx.step, ctx.options = step, options
        ctx.save_for_backward(q, k, v, out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out = ctx.saved_tensors
        step: Step = ctx.step
        parts: tuple[list[Tensor], ...] = ([], [], [])
        kv_heads = k.shape[1]
        for (batch, q_, k_, v_), (_, out_, do) in zip(
            _batches(step, q, k, v), _batches(step, out, gradient, heads=q.shape[1]), strict=True
        ):
            dq, dk, dv = _backward(q_, k_, v_, out_, do, ctx.options)
            parts[0].append(_by_row(dq, batch))
            parts[1].append(_by_row(_summed(dk, batch, kv_heads), batch))
            parts[2].append(_by_row(_summed(dv, batch, kv_heads), batch))
        dq, dk, dv = (_unsorted(each, step).to(q.dtype) for each in parts)
        return dq, dk, dv, None, None


def _batches(step: Step, *rows: Tensor, heads: int | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield each batch of sequences with its part of the rows, [count · heads, length, dim], in single precision.

    Where there are fewer heads of keys than of queries, each serves several.
    """
    heads = heads or rows[0].shape[1]
    by_length = [x if step.order is None else x.index_select(0, step.order[0]) for x in rows]
    start = 0
    for batch in step.batches:
        stop = start + batch.count * batch.length
        yield batch, *(_by_head(x[start:stop].float(), batch, heads) for x in by_length)
        start = stop


def _by_head(x: Tensor, batch: SequenceBatch, heads: int) -> Tensor:
    x = x.view(batch.count, batch.length, *x.shape[1:]).transpose(1, 2)
    if x.shape[1] < heads:
        x = x.repeat_interleave(heads // x.shape[1], dim=1)
    return x.reshape(batch.count * heads, batch.length, -1)


def _by_row(x: Tensor, batch: SequenceBatch) -> Tensor:
    """Return [count · heads, length, dim] as [count · length, heads, dim]."""
    return x.view(batch.count, -1, *x.shape[1:]).transpose(1, 2).flatten(0, 1)


def _summed(x: Tensor, batch: SequenceBatch, kv_heads: int) -> Tensor:
    """Return the sums over the queries' heads that share keys."""
    shared = x.view(batch.count, kv_heads, -1, *x.shape[1:])
    total = shared[:, :, 0]
    for index in range(1, shared.shape[2]):
        total = total + shared[:, :, index]
    return total.reshape(-1, *x.shape[1:])


def _unsorted(parts: list[Tensor], step: Step) -> Tensor:
    rows = parts[0] if len(parts) == 1 else torch.cat(parts)
    return rows.contiguous() if step.order is None else rows.index_select(0, step.order[1])


def _forward(q: Tensor, k: Tensor, v: Tensor, options: _Options) -> Tensor:
    outs = []
    for queries in _tiles(q.shape[1]):
        keys = _visible(queries, options.window)
        weights, _ = _weights(q, k, queries, keys, options)
        outs.append(_sum_tiles(weights, v, keys))
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)


def _backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, do: Tensor, options: _Options
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for queries in _tiles(q.shape[1]):
        keys = _visible(queries, options.window)
        weights, scores = _weights(q, k, queries, keys, options)
        do_ = do[:, queries]
        slopes = torch.cat([torch.bmm(do_, v[:, tile].transpose(1, 2)) for tile in keys], dim=2)
        slopes.sub_((do_ * out[:, queries]).sum(dim=2, keepdim=True)).mul_(weights)
        if options.softcap is not None:
            slopes.mul_(1 - (scores / options.softcap).square())
        slopes.mul_(options.scale)
        dq[:, queries] = _sum_tiles(slopes, k, keys)
        for tile, part, weight in zip(keys, _split(slopes, keys), _split(weights, keys), strict=True):
            dk[:, tile] += torch.bmm(part.transpose(1, 2), q[:, queries])
            dv[:, tile] += torch.bmm(weight.transpose(1, 2), do_)
    return dq, dk, dv


def _tiles(length: int) -> list[slice]:
    return [slice(start, min(start + _TILE, length)) for start in range(0, length, _TILE)]


def _visible(queries: slice, window: int | None) -> list[slice]:
    """Return the tiles of keys that one of the queries sees, up to their own."""
    first = 0 if window is None else max(0, queries.start - window + 1)
    return [tile for tile in _tiles(queries.stop) if tile.stop > first]


def _split(x: Tensor, keys: list[slice]) -> list[Tensor]:
    return [part.contiguous() for part in x.split([tile.stop - tile.start for tile in keys], dim=2)]


def _sum_tiles(weights: Tensor, values: Tensor, keys: list[slice]) -> Tensor:
    """Return weights [batch, queries, keys] @ values, summed tile by tile."""
    first, *others = zip(_split(weights, keys), keys, strict=True)
    total = torch.bmm(first[0], values[:, first[1]])
    for part, tile in others:
        total += torch.bmm(part, values[:, tile])
    return total


def _weights(q: Tensor, k: Tensor, queries: slice, keys: list[slice], options: _Options) -> tuple[Tensor, Tensor]:
    """Return the softmax [batch, queries, keys], and the scores with their cap and before the mask."""
    scores = torch.cat([torch.bmm(q[:, queries], k[:, tile].transpose(1, 2)) for tile in keys], dim=2)
    scores.mul_(options.scale)
    if options.softcap is not None:
        scores.div_(options.softcap).tanh_().mul_(options.softcap)
    place = torch.arange(queries.start, queries.stop, device=q.device)[:, None]
    distance = place - torch.arange(keys[0].start, queries.stop, device=q.device)
    hidden = distance < 0 if options.window is None else (distance < 0) | (distance >= options.window)
    masked = scores.masked_fill(hidden, -torch.inf)
    if options.sinks is None:
        return masked.softmax(dim=-1), scores
    sinks = options.sinks.repeat(q.shape[0] // options.sinks.shape[0])[:, None, None].expand(-1, scores.shape[1], 1)
    return torch.cat([masked, sinks], dim=-1).softmax(dim=-1)[..., :-1], scores


AttentionInterface.register(IMPLEMENTATION, packed_attention)
