"""Times of the attention kernels, compared with torch."""

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu.cases import PAGE, SERVED_LENGTH, Setting
from benchmarks.gpu.stopwatch import Figures, copies, graph_microseconds, launch_figures, microseconds
from loragate.kernels.attention_rows import AttentionOptions
from loragate.kernels.gpu import decode_attention, prefill_attention
from loragate.kernels.paged_attention import gathered_decode_attention, tile_rows


def time_decode(setting: Setting, sequences: int, longest: int, bandwidth: float) -> list[Figures]:
    sizes, found = setting.sizes, []
    options = AttentionOptions(sizes.head_dim**-0.5)
    query = setting.numbers(sizes.heads, sequences, sizes.head_dim, dtype=setting.dtype)
    queries = query.transpose(0, 1).contiguous()
    out = torch.empty_like(queries)
    for storage in (None, torch.int8, torch.float8_e4m3fn):
        itemsize = (storage or setting.dtype).itemsize
        read = 2 * sequences * longest * sizes.kv_heads * sizes.head_dim * itemsize
        caches = [setting.cache(sequences, longest, setting.dtype, storage) for _ in range(copies(setting, read))]
        each = [(cache, _served(_pages(places)), setting.decode_rows(places).lengths) for cache, places in caches]
        ours = graph_microseconds(
            setting,
            *(
                lambda c=c, t=t, n=n: decode_attention.attend_into(out, queries, c, t, n, PAGE, options)
                for c, t, n in each
            ),
        )
        cache, rows = caches[0][0], setting.decode_rows(caches[0][1])
        figures = {
            "sequences": sequences,
            "length": longest,
            "sets": len(caches),
            "stored_as": str(cache.keys.dtype).removeprefix("torch."),
            **launch_figures(ours, read, 4 * sequences * longest * sizes.heads * sizes.head_dim, bandwidth),
            "torch_us": microseconds(setting, lambda c=cache, r=rows: gathered_decode_attention(query, c, r, options)),
        }
        print(figures, flush=True)
        found.append(figures)
    return found


def time_prefill(setting: Setting, bandwidth: float) -> Figures:
    """Time one whole prompt, and torch's attention over contiguous keys and values."""
    sizes, dtype = setting.sizes, setting.dtype
    chunk = sizes.prefill_rows
    cache, places = setting.cache(1, chunk, dtype)
    query = setting.numbers(sizes.heads, chunk, sizes.head_dim, dtype=dtype)
    options, size = AttentionOptions(sizes.head_dim**-0.5), tile_rows(cache, dtype)
    keys, values = (part[None].contiguous() for part in cache.gather(places[0]))
    tiles = [(row, min(size, chunk - row), row, 0) for row in range(0, chunk, size)]
    queries, where = query.transpose(0, 1).contiguous(), torch.tensor(tiles, device=setting.device)
    out, tables = torch.empty_like(queries), _pages(places)
    us = graph_microseconds(
        setting,
        lambda: prefill_attention.attend_into(out, queries, cache, tables, where, PAGE, size, options),
    )
    moved = 2 * query.nbytes + keys.nbytes + values.nbytes
    return {
        "tokens": chunk,
        **launch_figures(us, moved, 2 * sizes.heads * sizes.head_dim * chunk * (chunk + 1), bandwidth),
        "torch_us": microseconds(
            setting, lambda: F.scaled_dot_product_attention(query[None], keys, values, is_causal=True, enable_gqa=True)
        ),
    }


def _served(pages: Tensor) -> Tensor:
    """Widen tables to what steps have, because programs are launched for all of it."""
    return F.pad(pages, (0, max(0, SERVED_LENGTH // PAGE - pages.shape[1])))


def _pages(places: Tensor) -> Tensor:
    """Return the pages of sequences from the places of their tokens [sequences, longest]."""
    return (places[:, ::PAGE] // PAGE).int().contiguous()
