"""One traced forward pass of the plain model: its attention layers, their shapes, and the linears that share an
input."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from loragate.engine.layers.lora_linear import is_linear
from loragate.engine.model.tracing_layers import ResidualLayer, ResidualLayers
from loragate.engine.model.tracing_mixtures import BareWeights, check_experts, recording_experts
from loragate.engine.model.tracing_rotary import RotatedStates
from loragate.engine.model.tracing_rows import RowwiseModules

_TRACE = "loragate_trace"
PROBE_ROWS = 11  # many, and different, so that a router does not send all of them to one expert


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """An attention module and the shape of its cache."""

    module: nn.Module
    kv_heads: int
    key_dim: int
    value_dim: int
    passes_on_rotated: bool = False  # queries and keys, from their rotation to attention


@dataclass(slots=True)
class Trace:
    """The modules that one forward pass called, in order."""

    attention: list[AttentionLayer] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)  # names of linears that got the same tensor, by parent
    experts: dict[nn.Module, bool] = field(default_factory=dict)  # mixtures, and whether all rows go through them
    # parameters [out, in] that are only multiplied by, such as routers'
    bare_weights: list[str] = field(default_factory=list)
    # embeddings and norms, and the dimension of their input that counts rows
    rowwise: dict[str, int] = field(default_factory=dict)
    # by the first name of a group, the norm whose result it got, unchanged
    norms: dict[str, str] = field(default_factory=dict)
    # decoder layers whose sums are known
    residual: dict[str, ResidualLayer] = field(default_factory=dict)


def trace(model: PreTrainedModel) -> Trace:
    """Run the model on a few tokens and record its calls. Raise RuntimeError for a model that cannot be served."""
    check_experts(model)
    result = Trace()
    calls: list[tuple[str, Tensor]] = []
    linears = {name: m for name, m in model.named_modules() if is_linear(m)}
    device = next(model.parameters()).device
    tokens = torch.arange(PROBE_ROWS, device=device)[None]
    bare = BareWeights(list(_bare_weights(model)), PROBE_ROWS)
    rowwise = RowwiseModules(PROBE_ROWS)
    rotated = RotatedStates()
    layers = ResidualLayers(lambda module: any(layer.module is module for layer in result.attention))
    with (
        _recording(linears, calls),
        _recording_attention(model, result, rotated),
        recording_experts(model, result.experts, PROBE_ROWS),
        rowwise.recording(model),
        layers.recording(model),
        rotated.recording(model),
        torch.inference_mode(),
        bare,
    ):
        model(input_ids=tokens, position_ids=tokens, use_cache=False)
    result.bare_weights = bare.found
    result.rowwise = rowwise.found
    result.residual = layers.found
    if not result.attention:
        raise RuntimeError("its attention does not go through transformers' attention interface")
    result.groups = _group(calls)
    inputs = dict(calls)
    for first, *_ in result.groups:
        norm = rowwise.norm_of(inputs[first])
        if norm is not None:
            result.norms[first] = norm
    return result


def _bare_weights(model: PreTrainedModel) -> Iterator[tuple[str, nn.Parameter]]:
    for name, module in model.named_modules():
        if not is_linear(module) and not isinstance(module, nn.Embedding):
            for key, parameter in module.named_parameters(recurse=False):
                if parameter.ndim == 2:
                    yield f"{name}.{key}", parameter


def _group(calls: list[tuple[str, Tensor]]) -> list[list[str]]:
    groups: list[list[str]] = []
    counts: dict[str, int] = {}
    for name, _ in calls:
        counts[name] = counts.get(name, 0) + 1
    last: Tensor | None = None
    for name, x in calls:
        rows = x.numel() // x.shape[-1]
        if counts[name] != 1 or rows != PROBE_ROWS:
            last = None  # on rows of the model's own choice: which adapter a row belongs to is unknown
            continue
        siblings = groups[-1] if groups else []
        if last is x and siblings and _parent(siblings[0]) == _parent(name):
            siblings.append(name)
        else:
            groups.append([name])
        last = x
    return groups


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


@contextmanager
def _recording(linears: dict[str, nn.Module], calls: list[tuple[str, Tensor]]) -> Iterator[None]:
    def record(name: str) -> Any:
        return lambda _module, args: calls.append((name, args[0]))

    hooks = [module.register_forward_pre_hook(record(name)) for name, module in linears.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _recording_attention(model: PreTrainedModel, result: Trace, rotated: RotatedStates) -> Iterator[None]:
    """Replace attention: record the shapes, and return values of the right shape."""

    def record(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Any:
        passes_on = rotated.passes_on(module, query, key)
        result.attention.append(AttentionLayer(module, key.shape[1], key.shape[-1], value.shape[-1], passes_on))
        heads = query.shape[1] // value.shape[1]
        return value.repeat_interleave(heads, dim=1).transpose(1, 2).contiguous(), None

    AttentionInterface.register(_TRACE, record)
    before = model.config._attn_implementation
    model.set_attn_implementation(_TRACE)
    try:
        yield
    finally:
        model.set_attn_implementation(before)
