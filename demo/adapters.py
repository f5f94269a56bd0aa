"""The demo's adapters, trained with PEFT and saved in its format."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from loragate.demo.corpus import styled_samples
from loragate.demo.progress import OnStep
from loragate.demo.recipe import AdapterRecipe
from loragate.demo.training import Schedule, batches, fit


def build_adapter(recipe: AdapterRecipe, seed: int, model_dir: Path, directory: Path, on_step: OnStep) -> None:
    """Train an adapter for the base model in `model_dir` and write PEFT's two files to `directory`."""
    config = LoraConfig(
        task_type="CAUSAL_LM", r=recipe.rank, lora_alpha=recipe.alpha, target_modules=list(recipe.targets)
    )
    base = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = get_peft_model(base, config)
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    stream = batches(styled_samples(recipe.style, seed), tokenizer, recipe.tokens_per_batch, seed)
    fit(model, stream, Schedule(recipe.steps, recipe.learning_rate, warmup=recipe.steps // 10), on_step)
    _save(model, model_dir.name, directory)


def _save(model: PeftModel, base_name: str, directory: Path) -> None:
    model.save_pretrained(str(directory))
    # PEFT writes the base model's path, which only exists on this machine, and the targets in an order that varies
    # between runs; both are also in the model card that it adds.
    (directory / "README.md").unlink(missing_ok=True)
    file = directory / "adapter_config.json"
    config = json.loads(file.read_bytes())
    config |= {"base_model_name_or_path": base_name, "target_modules": sorted(config["target_modules"])}
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
