"""The time to the first token of a judge after a long document, as activated LoRA (aLoRA) and as plain LoRA.

An 88M-parameter Llama in float32 with 8,192 positions, and two adapters with the same weights, of rank 16 on all seven
linears; one of them is activated by four tokens. Per repeat, the base model answers a new document of 4,000 tokens.
Then each judge, in turn, reads the document, the answer, the invocation and an instruction. What the base model has
computed serves the activated judge up to the invocation; the plain one computes all of it. The activated
judge's greedy tokens are compared with those of the same engine without cached prefixes, and with PEFT's.

    python -m benchmarks.engine.invocation            # four minutes
"""

import argparse
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from benchmarks.engine.cpu import BASE_CONFIG, TARGETS
from benchmarks.lib.report import write
from benchmarks.lib.timed_engine import TimedEngine

POSITIONS = 8192
DOCUMENT, ANSWER, INSTRUCTION, NEW = 4000, 32, 20, 8
INVOCATION = [11, 12, 13, 14]
ACTIVATED, PLAIN = "activated", "plain"
SALT = b"one tenant"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="documents that are measured")
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), arguments.repeats)
    show(figures)
    print(f"written to {write('invocation', figures).relative_to(Path.cwd())}")


def measure(directory: Path, repeats: int) -> dict[str, Any]:
    adapters = build(directory)
    engine = TimedEngine(
        directory / "base", directory / "cache", adapters, max_model_len=POSITIONS, kv_cache_tokens=8 * POSITIONS
    )
    seconds: dict[str, list[float]] = defaultdict(list)
    cached: dict[str, list[int]] = defaultdict(list)
    judged: list[tuple[list[int], list[int]]] = []  # prompts of the activated judge, and its tokens
    for repeat in track(range(repeats + 1), description="documents; the first is a warm-up"):
        conversation = answered(engine, random.Random(repeat))
        for name in sorted(adapters, reverse=repeat % 2 == 0):
            prompt = [*conversation, *INVOCATION, *tokens(random.Random(f"{repeat} instruction"), INSTRUCTION)]
            request = engine.submit(prompt, name, max_tokens=NEW, cache_salt=SALT)
            first, *_ = engine.result(request)
            if repeat:
                seconds[name].append(engine.first[request] - engine.submitted[request])
                cached[name].append(first.cached_tokens)
                judged += [(prompt, engine.tokens(request))] if name == ACTIVATED else []
    uncached = [engine.generate(prompt, ACTIVATED, max_tokens=NEW) == found for prompt, found in judged]
    engine.close()
    model = PeftModel.from_pretrained(base_model(directory), adapters[ACTIVATED]).eval()
    peft = [greedy(model, prompt) == found for prompt, found in judged]
    first = {name: statistics.median(found) for name, found in seconds.items()}
    return {
        "document_tokens": DOCUMENT,
        "answer_tokens": ANSWER,
        "judge_prompt_tokens": DOCUMENT + ANSWER + len(INVOCATION) + INSTRUCTION,
        "repeats": repeats,
        **{
            name: {
                "first_token_ms": round(first[name] * 1000, 1),
                "all_first_token_ms": [round(each * 1000, 1) for each in seconds[name]],
                "cached_prompt_tokens": min(cached[name]),
            }
            for name in (ACTIVATED, PLAIN)
        },
        "speedup": round(first[PLAIN] / first[ACTIVATED], 1),
        "smallest_speedup": round(min(seconds[PLAIN]) / max(seconds[ACTIVATED]), 1),
        "outputs_as_without_cache": f"{sum(uncached)}/{len(uncached)}",
        "outputs_as_peft": f"{sum(peft)}/{len(peft)}",
    }


def build(directory: Path) -> dict[str, Path]:
    """Write the base model and two adapters with the same random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(**BASE_CONFIG.to_dict() | {"max_position_embeddings": POSITIONS})
    LlamaForCausalLM(config).save_pretrained(directory / "base")
    folders = {}
    for name, invocation in ((ACTIVATED, INVOCATION), (PLAIN, None)):
        torch.manual_seed(1)
        options: dict[str, Any] = {} if invocation is None else {"alora_invocation_tokens": invocation}
        lora = LoraConfig(r=16, lora_alpha=32, target_modules=TARGETS, task_type="CAUSAL_LM", **options)
        model = get_peft_model(base_model(directory), lora)
        for parameter_name, parameter in model.named_parameters():
            if "lora_B" in parameter_name:
                torch.nn.init.normal_(parameter, std=0.02)
        folders[name] = directory / name
        model.save_pretrained(folders[name])
    return folders


def base_model(directory: Path) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(directory / "base", dtype=torch.float32)


def answered(engine: TimedEngine, rng: random.Random) -> list[int]:
    """Return a new document with the base model's answer."""
    document = tokens(rng, DOCUMENT)
    request = engine.submit(document, max_tokens=ANSWER, cache_salt=SALT)
    engine.result(request)
    return document + engine.tokens(request)


def tokens(rng: random.Random, count: int) -> list[int]:
    """Return random tokens, none of which is of the invocation."""
    return [rng.randrange(INVOCATION[-1] + 1, BASE_CONFIG.vocab_size) for _ in range(count)]


@torch.inference_mode()
def greedy(model: Any, prompt: Sequence[int]) -> list[int]:
    """Return the tokens that PEFT generates."""
    ids = torch.tensor([list(prompt)])
    found = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False
    )
    return [int(token) for token in found[0, len(prompt) :]]


def show(figures: dict[str, Any]) -> None:
    table = Table("judge", "first token, ms", "prompt tokens from the cache")
    for name in (ACTIVATED, PLAIN):
        case = figures[name]
        table.add_row(name, str(case["first_token_ms"]), str(case["cached_prompt_tokens"]))
    Console().print(table)
    print(
        f"the activated judge is {figures['speedup']}× as fast; the same tokens as without the cache in "
        f"{figures['outputs_as_without_cache']}, as PEFT in {figures['outputs_as_peft']}"
    )


if __name__ == "__main__":
    main()
