"""The demo's adapters, trained with PEFT until they pass a validation, and saved in its format."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from rich.console import Console
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from loragate.demo.corpus import styled_samples
from loragate.demo.evaluate import Score, evaluate
from loragate.demo.greedy import GreedyChat
from loragate.demo.phrasing import validation_questions
from loragate.demo.progress import progress, report
from loragate.demo.recipe import AdapterRecipe
from loragate.demo.training import batches, fit, rounds

_STYLE_KEPT = 0.98
_ACCURACY = 0.95


def build_adapter(
    recipe: AdapterRecipe, seed: int, model_dir: Path, directory: Path, title: str, console: Console
) -> None:
    """Train an adapter for the base model in `model_dir` and write PEFT's two files to `directory`."""
    config = LoraConfig(
        task_type="CAUSAL_LM", r=recipe.rank, lora_alpha=recipe.alpha, target_modules=list(recipe.targets)
    )
    base = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = get_peft_model(base, config)
    _train(model, recipe, seed, model_dir, title, console)
    _save(model, model_dir.name, directory)


def _train(model: PeftModel, recipe: AdapterRecipe, seed: int, model_dir: Path, title: str, console: Console) -> None:
    """Train in rounds until the validation passes, and leave the weights of the best round in `model`.

    Rounding errors differ between machines, and with them the new wordings to which an adapter generalizes. A fixed
    number of steps would therefore be too small on some machines.
    """
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    stream = batches(styled_samples(recipe.style, seed, recipe.stray_share), tokenizer, recipe.tokens_per_batch, seed)
    chat = GreedyChat(model_dir, model=model)
    best: tuple[float, list[Tensor]] | None = None
    for number, schedule in enumerate(rounds(recipe.steps, recipe.learning_rate, recipe.rounds), start=1):
        name = title if number == 1 else f"{title}, round {number}"
        with progress(console, name, schedule.steps) as on_step:
            fit(model, stream, schedule, on_step)
        if recipe.rounds == 1:
            return  # nothing depends on the validation
        score = evaluate(chat, recipe.style, questions=validation_questions)
        report(console, f"{name}: in validation {score.style_kept:.1%} in style, {score.accuracy:.1%} correct")
        if _margin(score) >= 0:
            return
        if best is None or _margin(score) > best[0]:
            best = _margin(score), [weight.detach().clone() for weight in _weights(model)]
    if best is not None:
        _restore(model, best[1])


def _margin(score: Score) -> float:
    """Return by how much `score` passes the validation; a negative number is what it lacks."""
    return min(score.style_kept - _STYLE_KEPT, score.accuracy - _ACCURACY)


def _weights(model: PeftModel) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@torch.no_grad()
def _restore(model: PeftModel, weights: list[Tensor]) -> None:
    for parameter, weight in zip(_weights(model), weights, strict=True):
        parameter.copy_(weight)


def _save(model: PeftModel, base_name: str, directory: Path) -> None:
    model.half().save_pretrained(str(directory))
    # PEFT writes the base model's path, which only exists on this machine, and the targets in an order that varies
    # between runs; both are also in the model card that it adds.
    (directory / "README.md").unlink(missing_ok=True)
    file = directory / "adapter_config.json"
    config = json.loads(file.read_bytes())
    config |= {"base_model_name_or_path": base_name, "target_modules": sorted(config["target_modules"])}
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
