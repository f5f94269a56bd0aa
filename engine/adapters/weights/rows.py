"""An adapter's changes to one embedding or norm, in the layout that the device reads."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from loragate.engine.adapters.weights.dora import column_scale
from loragate.engine.adapters.weights.linear import Read
from loragate.engine.layers.row_patches import EmbeddingLora, OwnParameters, OwnVectors
from loragate.engine.layers.rowwise_module import RowPatch
from loragate.peft_format.plan.plan import AdapterPlan, EmbeddingPlan, TrainedTokens


def row_patch(name: str, module: nn.Module, plan: AdapterPlan, read: Read, dtype: torch.dtype) -> RowPatch | None:
    """Return the adapter's one change to the module of this name, or None. Low-rank factors are in `dtype`."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    if name in plan.replaced:
        return OwnParameters({key: read(spec).to(weight.dtype) for key, spec in plan.replaced[name].parameters.items()})
    if name in plan.biases:
        return OwnParameters({"bias": read(plan.biases[name]).to(weight.dtype)})
    if name in plan.embeddings:
        return _low_rank(plan.embeddings[name], weight.data, read, dtype)
    tokens = _trained_tokens(name, plan.trained_tokens.values())
    return None if tokens is None else _own_vectors(tokens, read, weight.dtype)


def _low_rank(plan: EmbeddingPlan, weight: Tensor, read: Read, dtype: torch.dtype) -> EmbeddingLora:
    a, b, scale = read(plan.lora_a).float().T, read(plan.lora_b).float().T * plan.scaling, None
    if plan.magnitude is not None:
        scale = column_scale(weight, a, b, read(plan.magnitude).float())
        b = b * scale
        scale = scale.to(dtype)
    return EmbeddingLora(a.to(dtype).contiguous(), b.to(dtype).contiguous(), scale)


def _trained_tokens(name: str, plans: Iterable[TrainedTokens]) -> TrainedTokens | None:
    return next((plan for plan in plans if name in (module.name for module in plan.modules)), None)


def _own_vectors(plan: TrainedTokens, read: Read, dtype: torch.dtype) -> OwnVectors:
    token_ids, order = torch.tensor(plan.token_ids).sort()
    return OwnVectors(token_ids, read(plan.rows)[order].to(dtype))
