"""The base model: a small Llama, trained from scratch on the generated corpus."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from loragate.demo.chat_format import END, PAD
from loragate.demo.corpus import base_samples, styled_samples
from loragate.demo.progress import OnStep
from loragate.demo.recipe import BaseRecipe, Recipe
from loragate.demo.tokenizer import save_tokenizer, token_id, train_tokenizer
from loragate.demo.training import Schedule, batches, fit


def build_base(recipe: Recipe, directory: Path, on_step: OnStep) -> None:
    """Train the base model and write a complete Hugging Face model folder (fp32 safetensors, tokenizer, chat
    template)."""
    base = recipe.base
    tokenizer = train_tokenizer(_tokenizer_texts(recipe), base.vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = LlamaForCausalLM(_config(base, tokenizer))
    stream = batches(base_samples(recipe.seed), tokenizer, base.tokens_per_batch, recipe.seed)
    matrices = [weight for name, weight in model.named_parameters() if ".layers." in name and weight.ndim == 2]
    fit(model, stream, Schedule(base.steps, base.learning_rate, warmup=base.steps // 10), on_step, matrices)
    _save(model, tokenizer, base, directory)


def _tokenizer_texts(recipe: Recipe) -> list[str]:
    """Return the texts of the base and of the adapters: the words of both should be tokens."""
    count = recipe.base.tokenizer_samples
    samples = list(islice(base_samples(recipe.seed), count))
    for _, adapter in recipe.adapters():
        samples += islice(styled_samples(adapter.style, recipe.seed), count // 8)
    return [piece.text for sample in samples for piece in sample]


def _config(base: BaseRecipe, tokenizer: Tokenizer) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=base.vocabulary,
        hidden_size=base.hidden_size,
        intermediate_size=base.intermediate_size,
        num_hidden_layers=base.layers,
        num_attention_heads=base.heads,
        num_key_value_heads=base.kv_heads,
        max_position_embeddings=base.max_positions,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=token_id(tokenizer, END),
        pad_token_id=token_id(tokenizer, PAD),
    )


def _save(model: LlamaForCausalLM, tokenizer: Tokenizer, base: BaseRecipe, directory: Path) -> None:
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=token_id(tokenizer, END), pad_token_id=token_id(tokenizer, PAD)
    )
    model.save_pretrained(directory)
    save_tokenizer(tokenizer, directory, base.max_positions)
