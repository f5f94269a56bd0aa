"""Attention over a paged KV cache, for decode rows and for chunks of prefill, in one packed batch.

Paging is vLLM's (Kwon et al., 2023, arXiv:2309.06180); grouped-query attention is Ainslie et al., 2023
(arXiv:2305.13245); soft-capping is Gemma 2's (arXiv:2408.00118, section 2); sinks are GPT-OSS's: one learned logit per
head that takes part in the softmax and carries no value.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from loragate.kernels import cpu, gpu
from loragate.kernels.attention_rows import AttentionOptions, DecodeRows, PaddedRows, PrefillRows
from loragate.kernels.kv_cache import LayerCache

if cpu.available():
    from loragate.kernels.cpu import decode_attention as cpu_decode
if gpu.available():
    from loragate.kernels.gpu import decode_attention as gpu_decode
    from loragate.kernels.gpu import kv_write as gpu_write
    from loragate.kernels.gpu import prefill_attention as gpu_prefill


_TILE_ROWS = 64


def write_kv(cache: LayerCache, places: Tensor, keys: Tensor, values: Tensor) -> None:
    """Store keys and values [kv_heads, rows, dim] of new tokens at `places` [rows]."""
    if gpu.serves(cache.keys.device):
        gpu_write.write(cache, places, keys, values)
    else:
        cache.write(places, keys, values)


def decode_attention(query: Tensor, cache: LayerCache, rows: DecodeRows, options: AttentionOptions) -> Tensor:
    """Attend from one new token per sequence: query [heads, sequences, dim] → [heads, sequences, value_dim]."""
    if gpu.serves(query.device):
        return gpu_decode.decode_attention(query, cache, rows, options)
    if cpu.available() and cpu_decode.supports(cache):
        return cpu_decode.decode_attention(query, cache, rows, options)
    return gathered_decode_attention(query, cache, rows, options)


def gathered_decode_attention(query: Tensor, cache: LayerCache, rows: DecodeRows, options: AttentionOptions) -> Tensor:
    """Compute the same in torch, on any device.

    Keys are gathered to the length of the longest sequence and masked by selection. The result of a shorter sequence
    does not depend on the padding, because masked keys have weight zero and null values are zero.
    """
    heads, sequences, _ = query.shape
    longest = rows.token_places.shape[1]
    keys, values = cache.gather(rows.token_places.reshape(-1))
    kv_heads = keys.shape[0]
    grouped = query.view(kv_heads, heads // kv_heads, sequences, -1).transpose(1, 2)
    scores = grouped @ keys.view(kv_heads, sequences, longest, -1).transpose(2, 3)
    position = torch.arange(longest, device=query.device)
    visible = position < rows.lengths[:, None]
    if options.window is not None:
        visible &= position >= rows.lengths[:, None] - options.window
    weights = _softmax(scores, visible[:, None, :], options)
    out = weights.to(values.dtype) @ values.view(kv_heads, sequences, longest, -1)
    return out.transpose(1, 2).reshape(heads, sequences, -1)


def padded_attention(query: Tensor, cache: LayerCache, rows: PaddedRows, options: AttentionOptions) -> Tensor:
    """Compute attention of all rows of a batch of fixed size: query [heads, rows, dim] → [heads, rows, value_dim].

    The results of unused rows are finite and meaningless.
    """
    if not gpu.serves(query.device):
        spread = rows.tables[:, :, None] * rows.page + torch.arange(rows.page, device=query.device)
        each = DecodeRows(spread.flatten(1)[rows.owners], rows.positions + 1)
        return gathered_decode_attention(query, cache, each, options)
    heads, count, _ = query.shape
    sequences = min(count, rows.lengths.shape[0])
    has_prefill = rows.tiles.shape[0] > 0
    assert has_prefill or count == sequences
    make = torch.zeros if has_prefill else torch.empty
    out = make(count, heads, cache.values.shape[2], dtype=query.dtype, device=query.device)
    query = query.transpose(0, 1).contiguous()
    tables, lengths = rows.tables[:sequences], rows.lengths[:sequences]
    gpu_decode.attend_into(out, query, cache, tables, lengths, rows.page, options)
    if has_prefill:
        gpu_prefill.attend_into(out, query, cache, rows.tables, rows.tiles, rows.page, rows.tile_rows, options)
    return out.transpose(0, 1)


def tile_rows(cache: LayerCache, dtype: torch.dtype) -> int:
    """Return the maximum number of queries of this dtype in a tile over this cache."""
    if not gpu.available():
        return _TILE_ROWS
    return gpu_prefill.tile_rows(cache.keys.shape[2], cache.values.shape[2], dtype, cache.keys.dtype)


def prefill_attention(query: Tensor, cache: LayerCache, rows: PrefillRows, options: AttentionOptions) -> Tensor:
    """Compute causal attention of one sequence's chunk over its context and itself.

    query [heads, chunk, dim] → [heads, chunk, value_dim]; the chunk's own keys are already in the cache.
    """
    if gpu.serves(query.device):
        return gpu_prefill.prefill_attention(query, cache, rows, options)
    keys, values = cache.gather(rows.token_places)
    heads, chunk, _ = query.shape
    kv_heads, length, _ = keys.shape
    key_position = torch.arange(length, device=query.device)
    query_position = torch.arange(rows.context, length, device=query.device)[:, None]
    visible = key_position <= query_position
    if options.window is not None:
        visible &= key_position > query_position - options.window
    if options.softcap is None and options.sinks is None:
        return F.scaled_dot_product_attention(
            query[None], keys[None], values[None], attn_mask=visible, scale=options.scale, enable_gqa=True
        )[0]
    grouped = query.view(kv_heads, heads // kv_heads, chunk, -1)
    scores = grouped @ keys.transpose(1, 2)[:, None]
    # _softmax expects the head group before the last two dimensions, as in decode: [kv_heads, chunk, group, keys]
    weights = _softmax(scores.transpose(1, 2), visible[:, None, :], options).transpose(1, 2)
    return (weights.to(values.dtype) @ values[:, None]).reshape(heads, chunk, -1)


def _softmax(scores: Tensor, visible: Tensor, options: AttentionOptions) -> Tensor:
    """Return the softmax in float32 of scores [kv_heads, rows, group, keys]; visible [rows, 1, keys]."""
    scores = scores.float() * options.scale
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    scores = scores.masked_fill(~visible, float("-inf"))
    if options.sinks is None:
        return scores.softmax(dim=-1)
    kv_heads, rows, group, _ = scores.shape
    sinks = options.sinks.float().view(kv_heads, 1, group, 1).expand(-1, rows, -1, -1)
    return torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]
