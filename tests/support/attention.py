"""Reference attention in float64, and a filled paged cache."""

from dataclasses import replace

import torch
from torch import Tensor

from loragate.kernels.attention_rows import AttentionOptions, DecodeRows
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.paged_attention import write_kv

HEADS, KV_HEADS, DIM, PLACES = 6, 2, 16, 256
VARIANTS = {
    "plain": AttentionOptions(scale=0.25),
    "window": AttentionOptions(scale=0.25, window=5),
    "softcap": AttentionOptions(scale=0.25, softcap=2.0),
    "sinks": AttentionOptions(scale=0.25, sinks=torch.linspace(-1, 2, HEADS)),
    "all": AttentionOptions(scale=0.25, window=9, softcap=3.0, sinks=torch.linspace(2, -1, HEADS)),
}


def options_on(device: torch.device, variant: str) -> AttentionOptions:
    """Return the options of a variant with their tensors on the device."""
    options = VARIANTS[variant]
    return options if options.sinks is None else replace(options, sinks=options.sinks.to(device))


def reference(query: Tensor, keys: Tensor, values: Tensor, options: AttentionOptions) -> Tensor:
    """query [heads, q, dim] at the last q positions of keys [kv_heads, length, dim] → [heads, q, dim], float64.

    All on the host, as the tensors of `VARIANTS` are.
    """
    groups = HEADS // KV_HEADS
    query, keys, values = query.double(), keys.double(), values.double()
    keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
    length, count = keys.shape[1], query.shape[1]
    scores = query @ keys.transpose(1, 2) * options.scale
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    at = torch.arange(length - count, length)[:, None]
    key_at = torch.arange(length)
    hidden = key_at > at
    if options.window is not None:
        hidden |= key_at <= at - options.window
    scores = scores.masked_fill(hidden, float("-inf"))
    if options.sinks is not None:
        sinks = options.sinks.double()[:, None, None].expand(-1, count, 1)
        return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1] @ values
    return scores.softmax(-1) @ values


def filled_cache(lengths: list[int], block: int = 1) -> tuple[LayerCache, list[Tensor], list[Tensor], list[Tensor]]:
    """Return a cache with sequences scattered over it in blocks: (cache, places, keys, values)."""
    generator = torch.Generator().manual_seed(0)
    cache = LayerCache(PLACES, KV_HEADS, DIM, DIM, torch.float32, torch.device("cpu"))
    blocks = torch.randperm(PLACES // block - 1, generator=generator) + 1
    free = (blocks[:, None] * block + torch.arange(block)).reshape(-1)
    places, keys, values = [], [], []
    for length in lengths:
        taken = -(-length // block) * block
        mine, free = free[:length], free[taken:]
        k, v = torch.randn(2, KV_HEADS, length, DIM, generator=generator)
        write_kv(cache, mine, k, v)
        places.append(mine)
        keys.append(k)
        values.append(v)
    return cache, places, keys, values


def decode_rows(places: list[Tensor], padding: int = 0) -> DecodeRows:
    longest = max(len(p) for p in places) + padding
    table = torch.zeros(len(places), longest, dtype=torch.long)
    for row, mine in enumerate(places):
        table[row, : len(mine)] = mine
    return DecodeRows(table, torch.tensor([len(p) for p in places]))
