"""Attention over a paged KV cache, for decode rows and for chunks of prefill, in one packed batch.

Paging is vLLM's (Kwon et al., 2023, arXiv:2309.06180); grouped-query attention is Ainslie et al., 2023
(arXiv:2305.13245); soft-capping is Gemma 2's (arXiv:2408.00118, section 2); sinks are GPT-OSS's: one learned
logit a head that takes part in the softmax and carries no value.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from loragate.kernels import cpu, gpu
from loragate.kernels.memory_advice import prefer_huge_pages

if cpu.available():
    from loragate.kernels.cpu import decode_attention as cpu_decode
if gpu.available():
    from loragate.kernels.gpu import decode_attention as gpu_decode
    from loragate.kernels.gpu import kv_write as gpu_write
    from loragate.kernels.gpu import prefill_attention as gpu_prefill


_TILE_ROWS = 64


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """What a model's attention layer asks for beyond plain causal attention."""

    scale: float
    window: int | None = None  # a query sees keys at distance < window
    softcap: float | None = None
    sinks: Tensor | None = None  # [heads]


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """The first `len(lengths)` rows of the batch: one new token of each of as many sequences.

    token_places [sequences, longest] gives where each key lies in the cache; places past a sequence's length
    point at the null place, which holds zeros. lengths [sequences] count the new token.
    """

    token_places: Tensor
    lengths: Tensor


@dataclass(frozen=True, slots=True)
class PrefillRows:
    """Rows [start, stop) of the batch: a chunk of one sequence's prompt, `context` tokens of which came before.

    token_places [context + stop − start]: where its keys lie in the cache.
    """

    start: int
    stop: int
    context: int
    token_places: Tensor


@dataclass(frozen=True, slots=True)
class PaddedRows:
    """All rows of a batch of fixed size, in memory of the device that each step fills anew: no launch depends on what
    it holds. Row i is sequence i's new token where `lengths` says so; the rows of chunks are in tiles.

    tables [sequences, pages]: which pages of the cache, of `page` places each, hold a sequence's tokens.
    lengths [sequences]: tokens of those that decode, the new one included; 0 for all others.
    tiles [tiles, 4]: first row, rows, first position and sequence; no rows where a tile is not needed.
    owners and positions [rows]: whose token each row is, and its place in the sequence.
    """

    tables: Tensor
    lengths: Tensor
    tiles: Tensor
    owners: Tensor
    positions: Tensor
    page: int
    tile_rows: int  # at most


class LayerCache:
    """Keys and values of one layer: [kv_heads, places, head_dim] each. Place 0 is the null place: zeros, for ever.

    The head is the slowest dimension so that gathering the places of a batch yields the operand of a batched
    matrix product without a further copy.
    """

    scales: Tensor | None = None  # [2, kv_heads, places], of keys and of values, where they are quantised

    def __init__(
        self,
        places: int,
        kv_heads: int,
        key_dim: int,
        value_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.keys = torch.zeros(kv_heads, places, key_dim, dtype=dtype, device=device)
        self.values = torch.zeros(kv_heads, places, value_dim, dtype=dtype, device=device)
        for part in (self.keys, self.values):
            prefer_huge_pages(part)

    def write(self, places: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [kv_heads, rows, dim] of new tokens at `places` [rows]."""
        if gpu.serves(self.keys.device):
            gpu_write.write(self, places, keys, values)
        else:
            self._write(places, keys, values)

    def _write(self, places: Tensor, keys: Tensor, values: Tensor) -> None:
        self.keys.index_copy_(1, places, keys)
        self.values.index_copy_(1, places, values)

    def gather(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values at `places`: [kv_heads, places, dim]."""
        return self.keys.index_select(1, places), self.values.index_select(1, places)

    @property
    def numbers_per_place(self) -> int:
        """Elements that one token takes."""
        return sum(part.shape[0] * part.shape[2] for part in self.stored)

    @property
    def stored(self) -> tuple[Tensor, ...]:
        """All that it keeps, each [kv_heads, places, …] and of one dtype, to be moved as it is."""
        return self.keys, self.values

    def read_blocks(self, places: Tensor, blocks: int) -> Tensor:
        """Everything at the places of so many equal blocks, a block a row: [blocks, numbers]."""
        return torch.cat([_by_block(part.index_select(1, places), blocks) for part in self.stored], dim=1)

    def write_blocks(self, places: Tensor, rows: Tensor) -> None:
        """Store what `read_blocks` gave, at other places."""
        kv_heads, blocks = self.keys.shape[0], rows.shape[0]
        size = places.shape[0] // blocks
        widths = [kv_heads * size * part.shape[2] for part in self.stored]
        for part, row in zip(self.stored, rows.split(widths, dim=1), strict=True):
            part.index_copy_(1, places, row.reshape(blocks, kv_heads, size, -1).transpose(0, 1).flatten(1, 2))


def _by_block(part: Tensor, blocks: int) -> Tensor:
    """[kv_heads, places, dim] → [blocks, kv_heads · places of a block · dim]."""
    by_block: Tensor = part.unflatten(1, (blocks, -1)).transpose(0, 1).flatten(1)
    return by_block


def decode_attention(query: Tensor, cache: LayerCache, rows: DecodeRows, options: AttentionOptions) -> Tensor:
    """Attention of one new token a sequence: query [heads, sequences, dim] → [heads, sequences, value_dim]."""
    if gpu.serves(query.device):
        return gpu_decode.decode_attention(query, cache, rows, options)
    if cpu.available() and cpu_decode.supports(cache):
        return cpu_decode.decode_attention(query, cache, rows, options)
    return gathered_decode_attention(query, cache, rows, options)


def gathered_decode_attention(query: Tensor, cache: LayerCache, rows: DecodeRows, options: AttentionOptions) -> Tensor:
    """The same in torch, on any device.

    Keys are gathered to the longest sequence and masked by selection; a shorter neighbour's result does not
    depend on how far it was padded, because masked keys weigh exactly zero and null values are zero.
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
    """Attention of all rows of a batch of fixed size: query [heads, rows, dim] → [heads, rows, value_dim]. What rows
    that are nobody's get is finite, and means nothing."""
    if not gpu.serves(query.device):
        spread = rows.tables[:, :, None] * rows.page + torch.arange(rows.page, device=query.device)
        each = DecodeRows(spread.flatten(1)[rows.owners], rows.positions + 1)
        return gathered_decode_attention(query, cache, each, options)
    heads, count, _ = query.shape
    out = torch.zeros(count, heads, cache.values.shape[2], dtype=query.dtype, device=query.device)
    query = query.transpose(0, 1).contiguous()
    gpu_decode.attend_into(out, query, cache, rows.tables, rows.lengths, rows.page, options)
    if rows.tiles.shape[0]:
        gpu_prefill.attend_into(out, query, cache, rows.tables, rows.tiles, rows.page, rows.tile_rows, options)
    return out.transpose(0, 1)


def tile_rows(cache: LayerCache, dtype: torch.dtype) -> int:
    """How many queries of such a dtype a tile may have, at most, over such a cache."""
    if not gpu.available():
        return _TILE_ROWS
    return gpu_prefill.tile_rows(cache.keys.shape[2], cache.values.shape[2], dtype, cache.keys.dtype)


def prefill_attention(query: Tensor, cache: LayerCache, rows: PrefillRows, options: AttentionOptions) -> Tensor:
    """Causal attention of one sequence's chunk over its context and itself.

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
    # _softmax wants the head group before the last two dimensions, as in decode: [kv_heads, chunk, group, keys]
    weights = _softmax(scores.transpose(1, 2), visible[:, None, :], options).transpose(1, 2)
    return (weights.to(values.dtype) @ values[:, None]).reshape(heads, chunk, -1)


def _softmax(scores: Tensor, visible: Tensor, options: AttentionOptions) -> Tensor:
    """Softmax in float32 of scores [kv_heads, rows, group, keys]; visible [rows, 1, keys]."""
    scores = scores.float() * options.scale
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    scores = scores.masked_fill(~visible, float("-inf"))
    if options.sinks is None:
        return scores.softmax(dim=-1)
    kv_heads, rows, group, _ = scores.shape
    sinks = options.sinks.float().view(kv_heads, 1, group, 1).expand(-1, rows, -1, -1)
    return torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]
