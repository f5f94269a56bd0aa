"""The tiny model of the attach test, its adapters, and what our own engine computes with them in float32."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from loragate.engine.local import LocalEngine
from loragate.engine.vllm_backend.probe import TOKENS, Reading, reading_from
from loragate.engine.vllm_backend.random_adapters import last_name, write_random
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind

MAX_RANK = 16
SLOTS = 14
MAX_LEN = 256
_VOCABULARY = 512
_AMPLITUDE = 0.5
_PROMPT_LENGTHS = (3, 19)
_TINY = LlamaConfig(
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=2,
    num_attention_heads=8,
    num_key_value_heads=8,
    vocab_size=_VOCABULARY,
    max_position_embeddings=512,
    initializer_range=0.15,  # spreads the logits
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
)


@dataclass(frozen=True, slots=True)
class Subject:
    """An adapter of the test: what it is named after, and the kind that it needs."""

    name: str
    folder: Path
    target: str | None = None
    kind: AdapterKind | None = None


def make_model(folder: Path) -> None:
    torch.manual_seed(0)
    LlamaForCausalLM(_TINY).save_pretrained(folder)


def make_subjects(layout: BaseLayout, folder: Path) -> list[Subject]:
    """Write an adapter for each target, for each kind, and two of all targets with ranks and scalings of their own."""
    linears = [m for m in layout.modules.values() if m.kind is ModuleKind.LINEAR]
    names = sorted({last_name(m.name) for m in linears})
    subjects = []
    for seed, name in enumerate(names):
        ranks = dict.fromkeys((m for m in linears if last_name(m.name) == name), (4, 8, 16)[seed % 3])
        subjects.append(Subject(name, write_random(folder / name, ranks, seed, _AMPLITUDE), target=name))
    blocks = {"o_proj": 2, "down_proj": 2}
    bdlora = {"use_bdlora": {"target_modules_bd_a": sorted(blocks), "nblocks": 2, "match_strict": False}}
    diagonal = dict.fromkeys((m for m in linears if last_name(m.name) in blocks), 8)
    where = write_random(folder / "blocks", diagonal, 50, _AMPLITUDE, bdlora, blocks)
    subjects.append(Subject("block-diagonal factors", where, kind=AdapterKind.BLOCK_DIAGONAL))
    embedding = {layout.modules[layout.input_embedding]: 8}
    where = write_random(folder / "embedding", embedding, 51, 4 * _AMPLITUDE)
    subjects.append(Subject("the embedding", where, kind=AdapterKind.EMBEDDING))
    ranks = {m: 4 if last_name(m.name) == "q_proj" else 8 for m in linears}
    patterns = {"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"up_proj": 3}}
    where = write_random(folder / "patterns", ranks, 60, _AMPLITUDE / 3, patterns)
    subjects.append(Subject("all linears, ranks and alphas by pattern", where))
    where = write_random(folder / "rslora", dict.fromkeys(linears, 8), 61, _AMPLITUDE / 3, {"use_rslora": True})
    subjects.append(Subject("all linears, rsLoRA", where))
    return subjects


def prompts() -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(3)
    return [tuple(torch.randint(3, _VOCABULARY, (length,), generator=generator).tolist()) for length in _PROMPT_LENGTHS]


def expectations(model: Path, subjects: Sequence[Subject], folder: Path) -> dict[str | None, list[Reading]]:
    """Return what our engine computes in float32 for each subject, None is the base model."""
    adapters = {subject.name: subject.folder for subject in subjects}
    options = {"dtype": "float32", "device": "cpu", "adapter_slots": SLOTS, "max_lora_rank": MAX_RANK, "threads": 1}
    engine = LocalEngine(model, folder, adapters, kv_cache_tokens=8192, max_batch_size=64, **options)
    try:
        sampling: dict[str, Any] = {"max_tokens": TOKENS, "top_logprobs": 2}
        asked = {name: [engine.submit(prompt, name, **sampling) for prompt in prompts()] for name in (None, *adapters)}
        return {name: [_reading(engine, each) for each in ids] for name, ids in asked.items()}
    finally:
        engine.close()


def _reading(engine: LocalEngine, request_id: int) -> Reading:
    outputs = [output for output in engine.result(request_id) if output.token is not None]
    if not outputs:
        raise RuntimeError(f"our own engine failed: {engine.result(request_id)[-1].error}")
    tokens = [output.token for output in outputs if output.token is not None]
    return reading_from(tokens, [output.logprob for output in outputs if output.logprob is not None])
