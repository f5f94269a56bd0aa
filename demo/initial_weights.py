"""An induction head (https://arxiv.org/abs/2209.11895) that is there from the start.

A model copies text with two heads: one notes at each token which one precedes it, and a later one looks for the place
behind an earlier occurrence of the current token. From random weights they form so late that most of the training would
pass before anything is copied. Here they are set. What is copied, and when, is learned.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

_FREQUENCIES = 6  # the fastest ones of the rotary embedding tell neighbours apart
_NEIGHBOUR, _NOTE, _MATCH = 0.4, 5.0, 2.0  # strengths


@torch.no_grad()
def set_induction_head(model: LlamaForCausalLM) -> None:
    """Set a head of the first layer and one of the second; `model` has the random weights of its family.

    The first `width` numbers of an embedding are compared; the next `width` are the place of the notes.
    """
    width = model.model.layers[0].self_attn.head_dim // 2
    embedding: Tensor = model.model.embed_tokens.weight
    scale = embedding.std()
    shared = torch.ones(embedding.shape[1])
    shared[: 2 * width] = 0
    embedding[:, :width] -= embedding[:, :width].mean(0)
    embedding[:, width : 2 * width] = 0
    embedding += scale * shared  # a part that all tokens have
    _set_previous_token_head(model, width, shared / shared.norm(), scale * 2**0.5)
    _set_matching_head(model, width)


def _set_previous_token_head(model: LlamaForCausalLM, width: int, shared: Tensor, scale: Tensor) -> None:
    """Let each token attend to the one before it, and note a part of that one's embedding."""
    layer = model.model.layers[0]
    attention, size = layer.self_attn, 2 * width
    angles = model.model.rotary_emb.inv_freq[:_FREQUENCIES]
    query, key = torch.zeros(size), torch.zeros(size)
    key[:_FREQUENCIES] = _NEIGHBOUR
    # Turned back by the angle of one position, so that the product is greatest at a distance of one.
    query[:_FREQUENCIES] = _NEIGHBOUR * angles.cos()
    query[width : width + _FREQUENCIES] = -_NEIGHBOUR * angles.sin()
    attention.q_proj.weight[:size] = torch.outer(query, shared)
    attention.k_proj.weight[:size] = torch.outer(key, shared)
    attention.v_proj.weight[:size] = 0
    attention.v_proj.weight[range(width), range(width)] = 1
    attention.o_proj.weight[:, :size] = 0
    attention.o_proj.weight[: 2 * width] = 0
    attention.o_proj.weight[range(width, 2 * width), range(width)] = _NOTE * scale
    layer.mlp.down_proj.weight[: 2 * width] = 0


def _set_matching_head(model: LlamaForCausalLM, width: int) -> None:
    """Let each token attend to those whose note is like its own embedding."""
    attention = model.model.layers[1].self_attn
    # Dimensions that the rotary embedding hardly turns.
    slow = [*range(width // 2, width), *range(width + width // 2, 2 * width)]
    attention.q_proj.weight[: 2 * width] = 0
    attention.k_proj.weight[: 2 * width] = 0
    attention.q_proj.weight[slow, range(width)] = _MATCH
    attention.k_proj.weight[slow, range(width, 2 * width)] = _MATCH
