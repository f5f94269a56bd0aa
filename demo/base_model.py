"""The base model: a small Llama, trained from scratch on the generated corpus."""

from __future__ import annotations

import json
import random
from itertools import chain, islice
from pathlib import Path

import torch
from rich.console import Console
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from loragate.demo.chat_format import END, PAD
from loragate.demo.corpus import base_samples, styled_samples
from loragate.demo.initial_weights import set_induction_head
from loragate.demo.progress import progress, report
from loragate.demo.recipe import BaseRecipe, Recipe
from loragate.demo.tokenizer import save_tokenizer, token_id, train_tokenizer
from loragate.demo.tool_use.arguments import city
from loragate.demo.tool_use.copies import copying_chats
from loragate.demo.training import batches, exact_share, fit, rounds

_EXACT = 0.985
_VALIDATION_SEED = 1_000_000
_VALIDATION_SAMPLES = 512
_NAMES_PER_SAMPLE = 5


def build_base(recipe: Recipe, directory: Path, console: Console) -> None:
    """Train the base model and write a complete Hugging Face model folder (safetensors, tokenizer, chat template).

    Its tensors are rounded to fp16, which halves the files. It is still to be computed in fp32, as its config says.
    """
    base = recipe.base
    tokenizer = train_tokenizer(_tokenizer_texts(recipe), base.vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = LlamaForCausalLM(_config(base, tokenizer))
    set_induction_head(model)
    _train(model, tokenizer, recipe, console)
    _save(model, tokenizer, base, directory)


def _train(model: LlamaForCausalLM, tokenizer: Tokenizer, recipe: Recipe, console: Console) -> None:
    """Train in rounds until the model writes nearly all replies of a validation, which are like those of training."""
    base = recipe.base
    validation = list(islice(base_samples(_VALIDATION_SEED), _VALIDATION_SAMPLES))
    samples = chain(islice(copying_chats(recipe.seed), base.copies), base_samples(recipe.seed))
    stream = batches(samples, tokenizer, base.tokens_per_batch, recipe.seed)
    matrices = [weight for name, weight in model.named_parameters() if ".layers." in name and weight.ndim == 2]
    for number, schedule in enumerate(rounds(base.steps, base.learning_rate, base.rounds), start=1):
        title = "demo: training base model" if number == 1 else f"demo: training base model, round {number}"
        with progress(console, title, schedule.steps) as on_step:
            fit(model, stream, schedule, on_step, matrices)
        if base.rounds == 1:
            return  # nothing depends on the validation
        exact = exact_share(model, validation, tokenizer)
        report(console, f"{title}: in validation {exact:.1%} exactly right")
        if exact >= _EXACT:
            return


def _tokenizer_texts(recipe: Recipe) -> list[str]:
    """Return the texts of the base and of the adapters, whose words should be tokens, and names, whose pairs should."""
    count = recipe.base.tokenizer_samples
    samples = list(islice(base_samples(recipe.seed), count))
    for _, adapter in recipe.adapters():
        samples += islice(styled_samples(adapter.style, recipe.seed), count // 8)
    rng = random.Random(recipe.seed)
    names = [city(rng) for _ in range(count * _NAMES_PER_SAMPLE)]
    return names + [piece.text for sample in samples for piece in sample]


def _config(base: BaseRecipe, tokenizer: Tokenizer) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=base.vocabulary,
        hidden_size=base.hidden_size,
        intermediate_size=base.intermediate_size,
        num_hidden_layers=base.layers,
        num_attention_heads=base.heads,
        num_key_value_heads=base.kv_heads,
        max_position_embeddings=base.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=token_id(tokenizer, END),
        pad_token_id=token_id(tokenizer, PAD),
    )


def _save(model: LlamaForCausalLM, tokenizer: Tokenizer, base: BaseRecipe, directory: Path) -> None:
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=token_id(tokenizer, END), pad_token_id=token_id(tokenizer, PAD)
    )
    model.half().save_pretrained(directory)
    file = directory / "config.json"
    config = json.loads(file.read_bytes()) | {"dtype": "float32"}
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_tokenizer(tokenizer, directory, base.max_positions)
