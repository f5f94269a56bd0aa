"""The heads that transformers' classes for classification put on the base model that is loaded.

Each class is tried on the loaded model, with a head of random weights: it is served only if its logits are those of
that head on the states that the head for tokens gets. Then the two classes differ in nothing but their heads.
"""

import copy
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    PreTrainedModel,
)

from loragate.peft_format.classification import ClassifierHead, Task

log = logging.getLogger(__name__)

_CLASSES = {
    Task.SEQUENCE: MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    Task.TOKENS: MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
}
_LABELS = 3
_INITIALIZER_RANGE = 0.02  # of most configs
_PROMPT_TOKENS = 5
_TOLERANCE = {torch.float32: 1e-4}  # of the logits' norm
_TOLERANCE_HALF = 0.02  # both round them


def classifier_heads(model: PreTrainedModel) -> dict[Task, ClassifierHead]:
    """Return the heads by task. Call before our layers are in place."""
    return dict(_found(model))


def _found(model: PreTrainedModel) -> Iterator[tuple[Task, ClassifierHead]]:
    if model.get_output_embeddings() is None:
        return
    try:
        example = _example(model)
    except Exception as error:
        log.info("no head for labels is served: the inputs of the model's own head are not seen (%s)", error)
        return
    for task, classes in _CLASSES.items():
        made = cast(Mapping[type, Any], classes).get(type(model.config), None)
        if made is None:
            continue
        try:
            head = _tried(task, made, model, example)
        except Exception as error:  # classes of other libraries may raise anything
            log.info("%s is not served: %s", made.__name__, error)
            continue
        if head is not None:
            yield task, head


@dataclass(frozen=True)
class _Example:
    """A prompt [1, tokens], and the states [tokens, hidden] that the head for tokens gets for it."""

    ids: Tensor
    states: Tensor


@torch.inference_mode()
def _example(model: PreTrainedModel) -> _Example:
    vocabulary, padding = model.config.get_text_config().vocab_size, model.config.get_text_config().pad_token_id
    tokens = list(islice((token for token in range(vocabulary // 2, vocabulary) if token != padding), _PROMPT_TOKENS))
    ids = torch.tensor([tokens], device=model.device)
    states: list[Tensor] = []
    hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, args: states.append(args[0]))
    try:
        model(input_ids=ids, use_cache=False)
    finally:
        hook.remove()
    return _Example(ids, states[0][0])


def _tried(task: Task, made: type[PreTrainedModel], model: PreTrainedModel, example: _Example) -> ClassifierHead | None:
    found = _with_head(made, model, _LABELS, std=1.0, generator=torch.Generator().manual_seed(0))
    if found is None or not _agrees(task, found.model, example, found.head):
        return None
    return ClassifierHead(found.name, found.head.in_features, found.head.bias is not None)


@dataclass(frozen=True)
class HeadedModel:
    """A model of transformers' class for a task, with its head and the path of that."""

    model: PreTrainedModel
    head: nn.Linear
    name: str


def with_head(model: PreTrainedModel, task: Task, labels: int) -> HeadedModel:
    """Return transformers' class for the task on the body of this model, with a new head as transformers initializes
    it. Raise ValueError if there is no such class."""
    made = cast(Mapping[type, Any], _CLASSES[task]).get(type(model.config), None)
    std = float(getattr(model.config.get_text_config(), "initializer_range", _INITIALIZER_RANGE))
    found = None if made is None else _with_head(made, model, labels, std=std, generator=None)
    if found is None:
        raise ValueError(f"transformers has no class for {task} on this {model.config.model_type} model")
    if found.head.bias is not None:
        nn.init.zeros_(found.head.bias)
    return found


def _with_head(
    made: type[PreTrainedModel], model: PreTrainedModel, labels: int, *, std: float, generator: torch.Generator | None
) -> HeadedModel | None:
    config, prefix = copy.deepcopy(model.config), model.base_model_prefix
    config.num_labels = labels
    with torch.device("meta"):
        other = made(config).eval()
    body = getattr(model, prefix)
    if other.base_model_prefix != prefix or type(getattr(other, prefix)) is not type(body):
        return None
    setattr(other, prefix, body)
    heads = {name: m for name, m in other.named_modules() if isinstance(m, nn.Linear) and m.weight.is_meta}
    if len(heads) != 1:
        return None
    ((name, meta),) = heads.items()
    head = _new_head(meta, model, std, generator)
    parent, _, child = name.rpartition(".")
    setattr(other.get_submodule(parent), child, head)
    if any(tensor.is_meta for tensor in (*other.parameters(), *other.buffers())):
        return None
    return HeadedModel(other, head, name)


def _new_head(meta: nn.Linear, model: PreTrainedModel, std: float, generator: torch.Generator | None) -> nn.Linear:
    """Return a head with random weights from the generator, None: torch's own."""
    head = nn.Linear(meta.in_features, meta.out_features, bias=meta.bias is not None)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(std=std, generator=generator)
    return head.to(device=model.device, dtype=model.dtype)


@torch.inference_mode()
def _agrees(task: Task, other: PreTrainedModel, example: _Example, head: nn.Linear) -> bool:
    found = other(input_ids=example.ids, use_cache=False).logits[0].float()
    wanted = head(example.states).float()
    wanted = wanted[-1] if task is Task.SEQUENCE else wanted
    tolerance = _TOLERANCE.get(head.weight.dtype, _TOLERANCE_HALF)
    return found.shape == wanted.shape and bool((found - wanted).norm() <= tolerance * wanted.norm())
