"""Tokens per second of loragate's engine on a CPU, beside transformers' `generate` and PEFT's mixed batch.

An 88M-parameter Llama in float32, adapters of rank 16 on all seven linears, 16 requests at once of 64 prompt and
64 new tokens each, greedy. Systems take turns, round by round, so that a machine whose speed drifts is fair to all;
quote the ratios.

    python benchmarks/engine_cpu.py              # three rounds, a few minutes
    python benchmarks/engine_cpu.py --rounds 1   # a quick look
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from report import write
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from loragate.engine.local import LocalEngine

REQUESTS, PROMPT, NEW = 16, 64, 64
ADAPTER_COUNTS = (0, 1, 4, 16)
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BASE_CONFIG = LlamaConfig(
    hidden_size=768,
    intermediate_size=2048,
    num_hidden_layers=12,
    num_attention_heads=12,
    num_key_value_heads=4,
    vocab_size=8192,
    max_position_embeddings=512,
    initializer_range=0.05,
)

Run = Callable[[int], list[list[int]]]
"""Generates for all requests with so many distinct adapters; returns the new tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each system has its turn")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), arguments.rounds)
    show(figures)
    print(f"written to {write('engine_cpu', figures).relative_to(Path.cwd())}")


def measure(directory: Path, rounds: int) -> dict[str, Any]:
    adapters = build(directory)
    prompts = torch.randint(3, BASE_CONFIG.vocab_size, (REQUESTS, PROMPT), generator=torch.Generator().manual_seed(1))
    engine = LocalEngine(
        directory / "base", directory / "cache", adapters, adapter_slots=REQUESTS, max_batch_tokens=REQUESTS * PROMPT
    )
    systems: dict[str, Run] = {
        "transformers / PEFT": peer(directory, adapters, prompts),
        "loragate": ours(engine, list(adapters), prompts),
    }
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    outputs: dict[tuple[str, int], list[list[int]]] = {}
    for turn in track(range(rounds + 1), description="rounds, the first to warm up"):
        for count in ADAPTER_COUNTS:
            for name, run in systems.items():
                start = time.perf_counter()
                outputs[name, count] = run(count)
                if turn:
                    seconds[name, count].append(time.perf_counter() - start)
    engine.close()
    return summarise(list(systems), seconds, outputs)


def build(directory: Path) -> dict[str, Path]:
    """The base model and its adapters, random, as transformers and PEFT save them."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(BASE_CONFIG)
    model.save_pretrained(directory / "base")
    paths = {}
    for i in range(max(ADAPTER_COUNTS)):
        config = LoraConfig(r=16, lora_alpha=16, target_modules=TARGETS, init_lora_weights=False)
        wrapped = get_peft_model(model, config)
        paths[f"a{i}"] = directory / f"a{i}"
        wrapped.save_pretrained(paths[f"a{i}"])
        model = wrapped.unload()
    return paths


def peer(directory: Path, adapters: dict[str, Path], prompts: torch.Tensor) -> Run:
    """transformers' generate for the base; PEFT's mixed batch (adapter_names) with adapters."""
    base = AutoModelForCausalLM.from_pretrained(directory / "base").eval()
    plain = AutoModelForCausalLM.from_pretrained(directory / "base").eval()
    mixed: Any = None
    for name, path in adapters.items():
        if mixed is None:
            mixed = PeftModel.from_pretrained(base, path, adapter_name=name)
        else:
            mixed.load_adapter(path, adapter_name=name)
    mixed.eval()
    options: dict[str, Any] = {
        "attention_mask": torch.ones_like(prompts),
        "max_new_tokens": NEW,
        "do_sample": False,
        "eos_token_id": None,
        "pad_token_id": 0,
    }

    def run(count: int) -> list[list[int]]:
        names = {"adapter_names": [f"a{i % count}" for i in range(REQUESTS)]} if count else {}
        with torch.inference_mode():
            tokens = (mixed if count else plain).generate(input_ids=prompts, **options, **names)
        return [row[PROMPT:].tolist() for row in tokens]

    return run


def ours(engine: LocalEngine, names: list[str], prompts: torch.Tensor) -> Run:
    def run(count: int) -> list[list[int]]:
        requests = [
            engine.submit(prompt, names[i % count] if count else None, max_tokens=NEW)
            for i, prompt in enumerate(prompts.tolist())
        ]
        for request in requests:
            engine.result(request)
        return [engine.tokens(request) for request in requests]

    return run


def summarise(names: list[str], seconds: Any, outputs: Any) -> dict[str, Any]:
    """Medians, ratios to the peer in the same round, and how many requests agree with the peer to the last token."""
    tokens = REQUESTS * NEW
    cases = []
    for count in ADAPTER_COUNTS:
        theirs, mine = seconds[names[0], count], seconds[names[1], count]
        same = [a == b for a, b in zip(outputs[names[0], count], outputs[names[1], count], strict=True)]
        cases.append(
            {
                "adapters": count,
                "tokens_per_second": {
                    name: round(tokens / statistics.median(seconds[name, count]), 1) for name in names
                },
                "ratio": round(statistics.median(a / b for a, b in zip(theirs, mine, strict=True)), 2),
                "identical_outputs": f"{sum(same)}/{len(same)}",
            }
        )
    return {"requests": REQUESTS, "prompt_tokens": PROMPT, "new_tokens": NEW, "cases": cases}


def show(figures: dict[str, Any]) -> None:
    table = Table("adapters", "transformers / PEFT, tok/s", "loragate, tok/s", "ratio", "same output")
    for case in figures["cases"]:
        theirs, mine = case["tokens_per_second"].values()
        table.add_row(str(case["adapters"]), str(theirs), str(mine), f"{case['ratio']}×", case["identical_outputs"])
    Console().print(table)


if __name__ == "__main__":
    main()
