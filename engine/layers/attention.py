"""Paged attention behind transformers' attention interface.

The function registered here gets the arguments of a model's attention layer: scale, window, softcap and sinks are
keyword arguments. No mask function is registered, so transformers passes no mask.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from loragate.engine.layers.forward_context import ForwardContext
from loragate.kernels import gpu
from loragate.kernels.attention_rows import AttentionOptions
from loragate.kernels.kv_cache import LayerCache
from loragate.kernels.paged_attention import decode_attention, padded_attention, prefill_attention, write_kv

if gpu.available():
    from loragate.kernels.gpu import rotary as gpu_rotary

IMPLEMENTATION = "loragate_paged"
_STATE = "_loragate_attention"


@dataclass(frozen=True, slots=True)
class Rotation:
    """Queries and keys that are still to be rotated, and the memory for the result, which the layer passes on."""

    given: tuple[Tensor, Tensor, Tensor, Tensor]  # query, key, cos, sin, as of `kernels.rotary.rotate`
    out: tuple[Tensor, Tensor]


class AttentionState:
    """One attention layer's cache, reachable from the module that transformers passes."""

    def __init__(self, context: ForwardContext, cache: LayerCache) -> None:
        self.context = context
        self.cache = cache
        self.rotation: Rotation | None = None

    def write(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Write the step's keys and values, and before it rotate queries and keys that are not yet rotated."""
        rotation, self.rotation = self.rotation, None
        places = self.context.batch.write_places
        if rotation is None:
            write_kv(self.cache, places, key[0], value[0])
        else:
            assert query is rotation.out[0], "the layer computed with queries before they were rotated"
            assert key is rotation.out[1], "the layer computed with keys before they were rotated"
            gpu_rotary.rotate_and_write(rotation.out, *rotation.given, self.cache, places, value[0])


def attach(module: nn.Module, state: AttentionState) -> None:
    """Give an attention layer its cache."""
    object.__setattr__(module, _STATE, state)


def attention_state(module: nn.Module) -> AttentionState:
    """Return the state that `attach` gave the layer."""
    state: AttentionState = getattr(module, _STATE)
    return state


def paged_attention(
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
    state = attention_state(module)
    batch, cache = state.context.batch, state.cache
    options = AttentionOptions(
        scale=scaling if scaling is not None else query.shape[-1] ** -0.5,
        window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    state.write(query, key, value)
    query = query[0]
    if batch.padded is not None:
        return padded_attention(query, cache, batch.padded, options).transpose(0, 1)[None], None
    parts = []
    if batch.decode is not None:
        count = batch.decode.lengths.shape[0]
        parts.append(decode_attention(query[:, :count], cache, batch.decode, options))
    parts += [prefill_attention(query[:, p.start : p.stop], cache, p, options) for p in batch.prefills]
    out = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return out.transpose(0, 1)[None], None


AttentionInterface.register(IMPLEMENTATION, paged_attention)
