"""The frozen base model, with modules of ours that train adapters of several runs in one step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from loragate.engine.config import EngineConfig
from loragate.engine.layers.quantization import is_quantized_model
from loragate.engine.model import manifest
from loragate.engine.model.base_model import load_plain
from loragate.engine.model.errors import ModelRejected
from loragate.engine.model.tracing import Trace, trace
from loragate.peft_format.plan.layout import BaseLayout
from loragate.trainer import attention
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
                body = getattr(self.model, self.model.base_model_prefix)
                output = body(input_ids=step.tokens, position_ids=step.positions, use_cache=False)
                states: Tensor = output.last_hidden_state
            gradient = self.head.compute(step, states[0], results, train=train)
            if gradient is not None and states.requires_grad:
                torch.autograd.backward(states, gradient[None])


def load(directory: Path, config: EngineConfig, *, checkpointing: bool) -> BaseModel:
    """Load the model as the engine does. Raise ModelRejected for one that cannot be trained."""
    model = load_plain(directory, config)
    if is_quantized_model(model):
        raise ModelRejected(f"{directory} cannot be trained: adapters are trained on dense weights, not quantized ones")
    try:
        traced = trace(model)
    except RuntimeError as error:
        raise ModelRejected(f"{type(model).__name__} cannot be trained: {error}") from error
    return prepare(model, traced, config, checkpointing=checkpointing)


def prepare(model: PreTrainedModel, traced: Trace, config: EngineConfig, *, checkpointing: bool) -> BaseModel:
    """Replace the layers of a plain model by ours."""
    targets = find_targets(model, traced)
    found = manifest.targets(model)
    text = model.config.get_text_config()
    layout = BaseLayout(
        model_type=model.config.model_type,
        num_layers=text.num_hidden_layers,
        modules={m.name: m if m.name in targets.shapes else _unservable(m) for m in found.modules},
        parameters={p.path: _unservable(p) for p in found.parameters},
        tied_embeddings=bool(getattr(text, "tie_word_embeddings", False)),
        max_rank=config.max_lora_rank,
        input_embedding=found.input_embedding,
        head=found.head,
        dtype=str(model.dtype).removeprefix("torch."),
    )
    context = StepContext(model.device)
    layers = [model.get_submodule(name) for name in layer_names(model, traced)]
    modules = dict(model.named_modules())
    for number, names in enumerate(targets.groups):
        group = LoraGroup(number, [modules[name] for name in names], context)
        for index, name in enumerate(names):
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, LoraMember(group, index, modules[name]))
    for each in traced.attention:
        attention.attach(each.module, context)
    model.set_attn_implementation(attention.IMPLEMENTATION)
    if checkpointing:
        for layer in layers:
            _recompute(layer)
    vocabulary = int(text.vocab_size)
    length = _max_length(model, config)
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


def _unservable(module: Any) -> Any:
    return replace(module, servable=False)


def _max_length(model: PreTrainedModel, config: EngineConfig) -> int:
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
