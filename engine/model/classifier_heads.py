"""The heads that transformers' classes for classification would put on the base model that is loaded.

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
    config, prefix = copy.deepcopy(model.config), model.base_model_prefix
    config.num_labels = _LABELS
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
    head = _random_linear(meta, model)
    parent, _, child = name.rpartition(".")
    setattr(other.get_submodule(parent), child, head)
    if any(tensor.is_meta for tensor in (*other.parameters(), *other.buffers())):
        return None
    if not _agrees(task, other, example, head):
        return None
    return ClassifierHead(name, meta.in_features, meta.bias is not None)


def _random_linear(meta: nn.Linear, model: PreTrainedModel) -> nn.Linear:
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(meta.in_features, meta.out_features, bias=meta.bias is not None)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(generator=generator)
    return head.to(device=model.device, dtype=model.dtype)


@torch.inference_mode()
def _agrees(task: Task, other: PreTrainedModel, example: _Example, head: nn.Linear) -> bool:
    found = other(input_ids=example.ids, use_cache=False).logits[0].float()
    wanted = head(example.states).float()
    wanted = wanted[-1] if task is Task.SEQUENCE else wanted
    tolerance = _TOLERANCE.get(head.weight.dtype, _TOLERANCE_HALF)
    return found.shape == wanted.shape and bool((found - wanted).norm() <= tolerance * wanted.norm())
