"""Attention of one new token per sequence, reading keys and values in place from the paged cache.

Gathering a batch's cache into one tensor reads it, writes it, and reads it again, and pads every sequence to the length
of the longest one. Here each pair of a sequence and a key head is a separate task.
"""

import ctypes
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import carray
from torch import Tensor

from loragate.kernels.cpu.parallel import (
    ParallelLoop,
    compiled,
    floats_at,
    halves_at,
    int64_array,
    ints_at,
    number,
    thread,
    threads,
)

if TYPE_CHECKING:
    from loragate.kernels.attention_rows import AttentionOptions, DecodeRows
    from loragate.kernels.kv_cache import LayerCache

_FLOAT, _HALF = 4, 2  # bytes
_LINE = 16  # floats per cache line


def supports(cache: "LayerCache") -> bool:
    """Return whether the cache is in main memory in a dtype that the loops can read."""
    return cache.keys.device.type == "cpu" and cache.keys.dtype in (torch.float32, torch.bfloat16)


def decode_attention(query: Tensor, cache: "LayerCache", rows: "DecodeRows", options: "AttentionOptions") -> Tensor:
    """Compute `paged_attention.decode_attention`: query [heads, sequences, dim] → [heads, sequences, value_dim]."""
    keys, values = cache.keys, cache.values
    heads, sequences, _ = query.shape
    wanted = query.transpose(0, 1).float().contiguous()
    out = torch.empty(sequences, heads, values.shape[2])
    longest = rows.token_places.shape[1]
    group = heads // keys.shape[0]
    scratch = torch.empty(torch.get_num_threads(), -(-longest * group // _LINE) * _LINE)
    sinks = None if options.sinks is None else options.sinks.float().contiguous()
    factors = (ctypes.c_float * 2)(options.scale, options.softcap or 0.0)
    arguments = int64_array(
        *(wanted.data_ptr(), out.data_ptr(), keys.data_ptr(), values.data_ptr()),
        *(rows.token_places.data_ptr(), rows.lengths.data_ptr(), scratch.data_ptr(), ctypes.addressof(factors)),
        0 if sinks is None else sinks.data_ptr(),
        *(sequences, longest, heads, *keys.shape, values.shape[2], scratch.shape[1]),
        *(options.window or 0, keys.dtype == torch.bfloat16),
    )
    attend(arguments)
    return out.to(values.dtype).transpose(0, 1)


@ParallelLoop
def attend(pointer: Any) -> None:
    arguments = carray(pointer, 19)
    query_at, out_at, keys_at, values_at, places_at, lengths_at, scratch_at, factors_at, sinks_at = arguments[:9]
    sequences, longest, heads, kv_heads, room, dim, value_dim, width, window, halved = arguments[9:]
    group = heads // kv_heads
    queries = carray(floats_at(query_at), (sequences, heads, dim))
    out = carray(floats_at(out_at), (sequences, heads, value_dim))
    places = carray(ints_at(places_at), (sequences, longest))
    lengths = carray(ints_at(lengths_at), sequences)
    factors = carray(floats_at(factors_at), 2)
    sinks = carray(floats_at(sinks_at), heads)
    scratch = carray(floats_at(scratch_at + _FLOAT * width * thread()), width)
    scores = scratch[: longest * group].reshape(group, longest)
    for task in range(thread(), sequences * kv_heads, threads()):
        sequence, head = task // kv_heads, task % kv_heads
        first = max(0, lengths[sequence] - window) if window else 0
        seen = places[sequence, first : lengths[sequence]]
        mine = slice(head * group, (head + 1) * group)
        rest = scores, factors, sinks[mine], sinks_at != 0
        if halved:
            keys16 = carray(halves_at(keys_at + _HALF * head * room * dim), (room, dim))
            values16 = carray(halves_at(values_at + _HALF * head * room * value_dim), (room, value_dim))
            _attend_to(out[sequence, mine], queries[sequence, mine], keys16, values16, seen, *rest)
        else:
            keys = carray(floats_at(keys_at + _FLOAT * head * room * dim), (room, dim))
            values = carray(floats_at(values_at + _FLOAT * head * room * value_dim), (room, value_dim))
            _attend_to(out[sequence, mine], queries[sequence, mine], keys, values, seen, *rest)


@compiled
def _attend_to(
    out: Any, queries: Any, keys: Any, values: Any, seen: Any, scores: Any, factors: Any, sinks: Any, with_sinks: bool
) -> None:
    """Compute attention for the heads [group, dim] that share one head of keys; `scores` is scratch."""
    _score(scores, queries, keys, seen)
    _softmax(scores, len(seen), factors, sinks, with_sinks)
    _weighted_sum(out, scores, values, seen)


@compiled
def _score(scores: Any, queries: Any, keys: Any, seen: Any) -> None:
    """Compute queries [group, dim] · the seen keys [places, dim] → scores [group, seen]."""
    for i in range(len(seen)):
        place = seen[i]
        for g in range(queries.shape[0]):
            total = np.float32(0)
            for d in range(queries.shape[1]):
                total += queries[g, d] * number(keys[place, d])
            scores[g, i] = total


@compiled
def _softmax(scores: Any, count: int, factors: Any, sinks: Any, with_sinks: bool) -> None:
    """Replace the first `count` scores of each row by their softmax, in place. A sink takes part and is left out."""
    scale, softcap = factors
    for g in range(scores.shape[0]):
        highest = sinks[g] if with_sinks else np.float32(-np.inf)
        for i in range(count):
            score = scores[g, i] * scale
            if softcap > 0:
                score = math.tanh(score / softcap) * softcap
            scores[g, i] = score
            highest = max(highest, score)
        total = math.exp(sinks[g] - highest) if with_sinks else np.float32(0)
        for i in range(count):
            scores[g, i] = math.exp(scores[g, i] - highest)
            total += scores[g, i]
        for i in range(count):
            scores[g, i] /= total


@compiled
def _weighted_sum(out: Any, weights: Any, values: Any, seen: Any) -> None:
    """Compute weights [group, seen] · the seen values [places, value_dim] → out [group, value_dim]."""
    out[:] = 0
    for i in range(len(seen)):
        place = seen[i]
        for g in range(out.shape[0]):
            weight = weights[g, i]
            for d in range(out.shape[1]):
                out[g, d] += weight * number(values[place, d])
