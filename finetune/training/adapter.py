"""The adapter in training: a new one, or a version to continue from."""

from pathlib import Path

from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel

from loragate.finetune.jobs.recipe import Recipe


def new_adapter(base: PreTrainedModel, recipe: Recipe) -> PeftModel:
    """Add a new adapter to the base model. Raise ValueError for target modules that the model does not have."""
    targets = recipe.target_modules
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=recipe.lora_rank,
        lora_alpha=recipe.lora_alpha,
        lora_dropout=recipe.lora_dropout,
        use_rslora=recipe.use_rslora,
        use_dora=recipe.use_dora,
        target_modules=targets if isinstance(targets, str) else list(targets),
    )
    model = get_peft_model(base, config)
    assert isinstance(model, PeftModel)
    return model


def continued_adapter(base: PreTrainedModel, recipe: Recipe, folder: Path) -> PeftModel:
    """Load an adapter from PEFT's two files, which the upload's validator has accepted. The recipe already has its
    shape."""
    config = LoraConfig.from_pretrained(str(folder))
    assert not isinstance(config.target_modules, str), "PEFT would match a tenant's pattern by `re`"
    config.lora_dropout = recipe.lora_dropout
    config.inference_mode = False
    return PeftModel.from_pretrained(base, folder, is_trainable=True, config=config, use_safetensors=True)
