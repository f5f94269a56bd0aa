"""The frozen base model, with modules of ours that train adapters of several runs in one step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from loragate.engine.config import EngineConfig
from loragate.engine.layers.lora_linear import is_linear
from loragate.engine.model import manifest
from loragate.engine.model.tracing import Trace
from loragate.peft_format.plan.layout import BaseLayout
from loragate.trainer import attention, experts
from loragate.trainer.frozen import FrozenLinear, FrozenParameter
from loragate.trainer.head import Head
from loragate.trainer.lora_layer import LoraGroup, LoraMember, StepContext
from loragate.trainer.packing import Step
from loragate.trainer.request import DatumResults
from loragate.trainer.targets import Targets, find_targets, layer_names

_DEFAULT_LENGTH = 2048
_ROPE_BY_LENGTH = frozenset({"dynamic", "longrope"})


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A loaded model that computes steps.

    Attributes:
        layout: what adapters from elsewhere may change here.
    """

    model: PreTrainedModel
    context: StepContext
    head: Head
    targets: Targets
    layout: BaseLayout
    vocabulary: int
    max_length: int

    @property
    def device(self) -> torch.device:
        return self.model.device

    def compute(self, step: Step, results: DatumResults, *, train: bool) -> None:
        """Record the step's logprobs and losses and, if `train`, add to the gradients of its segments."""
        with self.context.running(step, step.segments):
            with torch.set_grad_enabled(train):
                states = self.final_states(step)
            gradient = self.head.compute(step, states[0], results, train=train)
            if gradient is not None and states.requires_grad:
                torch.autograd.backward(states, gradient[None])

    def final_states(self, step: Step) -> Tensor:
        """Return what the head gets, [1, rows, hidden]; the step must be running in the context."""
        body = getattr(self.model, self.model.base_model_prefix)
        states: Tensor = body(input_ids=step.tokens, position_ids=step.positions, use_cache=False).last_hidden_state
        return states


def prepare(model: PreTrainedModel, traced: Trace, config: EngineConfig, *, checkpointing: bool) -> BaseModel:
    """Replace the layers of a plain model by ours."""
    layout = _layout(model, config)
    targets = find_targets(model, traced, layout)
    layout = replace(
        layout,
        modules={name: replace(m, servable=name in targets.shapes) for name, m in layout.modules.items()},
        parameters={path: replace(p, servable=False) for path, p in layout.parameters.items()},
    )
    context = StepContext(model.device)
    layers = [model.get_submodule(name) for name in layer_names(model, traced)]
    modules = dict(model.named_modules())
    for number, names in enumerate(targets.groups):
        group = LoraGroup(number, [modules[name] for name in names], context)
        for index, name in enumerate(names):
            _replace(model, name, LoraMember(group, index, modules[name]))
    for name, module in modules.items():
        if is_linear(module) and name not in targets.shapes:
            _replace(model, name, FrozenLinear(module))
    for path in traced.bare_weights:
        weight = model.get_parameter(path)
        _replace(model, path, FrozenParameter(weight.data, requires_grad=False))
    for each in traced.attention:
        attention.attach(each.module, context)
    model.set_attn_implementation(attention.IMPLEMENTATION)
    model.set_experts_implementation(experts.IMPLEMENTATION)
    if checkpointing:
        for layer in layers:
            _recompute(layer)
    vocabulary = int(model.config.get_text_config().vocab_size)
    length = max_length(model, config)
    return BaseModel(model, context, Head(model, context, vocabulary), targets, layout, vocabulary, length)


def _recompute(layer: nn.Module) -> None:
    """Keep only a layer's input for the backward pass, and compute the rest again there."""
    forward: Callable[..., Any] = layer.forward

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(
            forward, *args, use_reentrant=False, preserve_rng_state=False, determinism_check="none", **kwargs
        )

    layer.forward = checkpointed


def _replace(model: nn.Module, name: str, replacement: nn.Module | nn.Parameter) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, replacement)


def _layout(model: PreTrainedModel, config: EngineConfig) -> BaseLayout:
    """Return what adapters from elsewhere could target; of their kinds, plain LoRA alone is trained."""
    found = manifest.targets(model)
    text = model.config.get_text_config()
    return BaseLayout(
        model_type=model.config.model_type,
        num_layers=text.num_hidden_layers,
        modules={m.name: m for m in found.modules},
        parameters={p.path: p for p in found.parameters},
        tied_embeddings=bool(getattr(text, "tie_word_embeddings", False)),
        max_rank=config.max_lora_rank,
        input_embedding=found.input_embedding,
        head=found.head,
        dtype=str(model.dtype).removeprefix("torch."),
    )


def max_length(model: PreTrainedModel, config: EngineConfig) -> int:
    """Return the context, short of lengths at which a sequence's arithmetic would depend on its neighbours'."""
    text = model.config.get_text_config()
    longest = int(getattr(text, "max_position_embeddings", None) or _DEFAULT_LENGTH)
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type") in _ROPE_BY_LENGTH:
        longest = min(longest, int(rope.get("original_max_position_embeddings") or longest))
    chunk = getattr(text, "attention_chunk_size", None)
    if chunk:
        longest = min(longest, int(chunk))
    return min(longest, config.max_model_len or longest)
