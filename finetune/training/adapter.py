"""The adapter in training: a new one, or a version to continue from."""

from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from loragate.engine.model.classifier_heads import with_head
from loragate.finetune.data.labels import LabelSet
from loragate.finetune.jobs.recipe import Recipe
from loragate.peft_format.classification import HEAD_NAMES, Task

_QUANTIZATION_MARKS = ("is_loaded_in_4bit", "is_loaded_in_8bit", "is_quantized", "quantization_method", "hf_quantizer")
"""What transformers notes on a model that it quantized, and PEFT asks of it."""
_NOT_ACTIVATED = "activated LoRA cannot be trained on all `target_modules` of this base model; name only some of them"


def new_adapter(base: PreTrainedModel, recipe: Recipe, labels: LabelSet | None = None) -> PeftModel:
    """Add a new adapter to the base model, with `labels` also a head for them. Raise ValueError for target modules that
    the model does not have, or on which PEFT trains no activated LoRA, or if it takes no such head."""
    if labels is None:
        return _adapted(base, recipe, "CAUSAL_LM", None)
    headed = with_head(base, Task.SEQUENCE, len(labels.labels))
    config = headed.model.config
    config.problem_type = labels.problem_type.value
    config.id2label = dict(enumerate(labels.labels))
    for mark in _QUANTIZATION_MARKS:
        if hasattr(base, mark):
            setattr(headed.model, mark, getattr(base, mark))
    saved = None if headed.name in HEAD_NAMES else [headed.name]  # PEFT adds its own names
    return _adapted(headed.model, recipe, Task.SEQUENCE, saved)


def _adapted(base: PreTrainedModel, recipe: Recipe, task: str, saved: list[str] | None) -> PeftModel:
    targets, invocation = recipe.target_modules, recipe.alora_invocation_tokens
    config = LoraConfig(
        task_type=task,
        modules_to_save=saved,
        r=recipe.lora_rank,
        lora_alpha=recipe.lora_alpha,
        lora_dropout=recipe.lora_dropout,
        use_rslora=recipe.use_rslora,
        use_dora=recipe.use_dora,
        alora_invocation_tokens=None if invocation is None else list(invocation),
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    try:
        model = get_peft_model(base, config)
        if invocation is not None:
            _try_activation(model, invocation)
    except ValueError as error:
        raise error if invocation is None else ValueError(_NOT_ACTIVATED) from error
    assert isinstance(model, PeftModel)
    return model


def _try_activation(model: PeftModel, invocation: tuple[int, ...]) -> None:
    """Raise ValueError if a targeted module does not receive `[rows, tokens, features]`, which PEFT takes for granted
    (OPT's feed-forward layers do not)."""
    ids = torch.tensor([[*invocation, *invocation]], device=model.device)
    try:
        with torch.no_grad():
            model(input_ids=ids)
    except IndexError as error:
        raise ValueError(_NOT_ACTIVATED) from error


def continued_adapter(base: PreTrainedModel, recipe: Recipe, folder: Path) -> PeftModel:
    """Load an adapter from PEFT's two files, which the upload's validator has accepted. The recipe already has its
    shape."""
    config = LoraConfig.from_pretrained(str(folder))
    assert not isinstance(config.target_modules, str), "PEFT would match a tenant's pattern by `re`"
    config.lora_dropout = recipe.lora_dropout
    config.inference_mode = False
    return PeftModel.from_pretrained(base, folder, is_trainable=True, config=config, use_safetensors=True)
