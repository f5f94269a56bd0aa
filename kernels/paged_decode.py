"""Decode attention on a CPU without gathering: products read keys and values where they lie in the cache.

Gathering a batch's cache into one tensor reads it, writes it, and reads it again. Here each run of consecutive places
of each sequence is one product with the queries of a head group (`gemm_batch`), and the results over runs are summed.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from loragate.kernels import gemm_batch
from loragate.kernels.gemm_batch import GemmBatch

if TYPE_CHECKING:
    from loragate.kernels.paged_attention import AttentionOptions, DecodeRows, LayerCache

Array = npt.NDArray[np.int64]


def supports(cache: "LayerCache") -> bool:
    """Whether MKL's batched product can read this cache."""
    return cache.keys.device.type == "cpu" and cache.keys.dtype == torch.float32 and gemm_batch.available()


def decode_attention(query: Tensor, cache: "LayerCache", rows: "DecodeRows", options: "AttentionOptions") -> Tensor:
    """As `paged_attention.decode_attention`: query [heads, sequences, dim] → [heads, sequences, value_dim]."""
    heads, sequences, _ = query.shape
    key = (heads, *cache.keys.shape, cache.values.shape[2], options.window)
    plan = rows.plans.get(key)
    if plan is None:
        plan = rows.plans[key] = DecodePlan(cache, rows, heads, options.window)
    scaled = query.transpose(0, 1) * options.scale
    scores = torch.empty(sequences, heads, plan.longest)
    plan.scores.run(scaled.contiguous(), scores, cache.keys)
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    scores.masked_fill_(plan.hidden, float("-inf"))
    if options.sinks is None:
        weights = scores.softmax(dim=-1)
    else:
        sinks = options.sinks.float().view(1, heads, 1).expand(sequences, -1, -1)
        weights = torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1].contiguous()
    parts = torch.zeros(plan.most_runs, sequences, heads, cache.values.shape[2])
    plan.values.run(weights, parts, cache.values)
    return parts.sum(dim=0).transpose(0, 1)


class DecodePlan:
    """The products of one step; all layers of one shape and window share them."""

    def __init__(self, cache: "LayerCache", rows: "DecodeRows", heads: int, window: int | None) -> None:
        kv_heads, places, key_dim = cache.keys.shape
        value_dim, group = cache.values.shape[2], heads // kv_heads
        lengths: Array = rows.lengths.numpy()
        visible = _visible(lengths, rows.token_places.shape[1], window)
        runs = _runs(rows.token_places.numpy(), lengths, visible)
        self.longest = visible.shape[1]
        self.most_runs = int(runs.index.max()) + 1
        self.hidden = torch.from_numpy(~visible)[:, None, :]
        # each run once for every head of keys and values; that head serves `group` heads of queries
        head = np.tile(np.arange(kv_heads), runs.sequence.size)
        sequence, position, place, count, index = (np.repeat(each, kv_heads) for each in runs.columns)
        query = sequence * heads + head * group
        many, key_dims, value_dims = (np.full_like(query, n) for n in (group, key_dim, value_dim))
        score, cached = query * self.longest + position, head * places + place
        part = (index * lengths.size * heads + query) * value_dim
        to_scores = np.stack([many, key_dims, count, query * key_dim, cached * key_dim, score], axis=1)
        to_values = np.stack([many, count, value_dims, score, cached * value_dim, part], axis=1)
        self.scores = GemmBatch(to_scores, key_dim, self.longest, add=False, transposed=True)
        self.values = GemmBatch(to_values, self.longest, value_dim, add=False)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Visible positions of each sequence whose places follow one another. Each array has one entry a run."""

    sequence: Array
    position: Array  # of the first, in the sequence
    place: Array  # of the first, in the cache
    count: Array
    index: Array  # of the run, in its sequence

    @property
    def columns(self) -> tuple[Array, ...]:
        return self.sequence, self.position, self.place, self.count, self.index


def _visible(lengths: Array, longest: int, window: int | None) -> npt.NDArray[np.bool_]:
    position = np.arange(longest)
    visible: npt.NDArray[np.bool_] = position < lengths[:, None]
    if window is not None:
        visible &= position >= lengths[:, None] - window
    return visible


def _runs(places: Array, lengths: Array, visible: npt.NDArray[np.bool_]) -> _Runs:
    begins = visible.copy()
    begins[:, 1:] &= ~visible[:, :-1] | (places[:, 1:] != places[:, :-1] + 1)
    sequence, position = np.nonzero(begins)
    last = np.append(sequence[1:] != sequence[:-1], True)
    ends = np.where(last, lengths[sequence], np.append(position[1:], 0))
    first = np.flatnonzero(np.append(True, last[:-1]))
    index = np.arange(sequence.size) - np.repeat(first, np.diff(np.append(first, sequence.size)))
    return _Runs(sequence, position, places[sequence, position], ends - position, index)
