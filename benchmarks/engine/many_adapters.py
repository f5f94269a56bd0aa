"""The cost of thousands of adapters: throughput with 2,000 adapters and 5, and latency with one more than slots.

A small Llama in float32 with 16 adapter slots serves adapters of ranks 8 and 64. Three questions:

- throughput: 16 concurrent requests, their adapters drawn from 5 or from 2,000 (uniformly, and Zipf-distributed as
  popularity usually is), everything but the slots warm. S-LoRA (Sheng et al., 2023, arXiv:2311.03285, table 3) loses
  5.5 % from 5 to 2,000 adapters.
- one more than slots: requests arrive at random (open loop, half of the engine's capacity), their adapters drawn
  uniformly from as many as there are slots, and from one more. What is the 99th percentile of the time to first token?
- one slot, requests for A, B, A, A, A, …: how many others are served before B?

    python -m benchmarks.engine.many_adapters
    python -m benchmarks.engine.many_adapters --adapters 200 --requests 200   # a quick look
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.progress import track
from rich.table import Table
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.lib.report import write
from benchmarks.lib.timed_engine import TimedEngine
from loragate.engine.runtime.interpreter import freeze_objects

SLOTS = 16
PROMPT, NEW = 32, 32
FEW = 5
RANKS = (8, 8, 8, 64)
BASE_CONFIG = LlamaConfig(
    hidden_size=256,
    intermediate_size=704,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=2048,
    max_position_embeddings=256,
)
TARGETS = ["q_proj", "v_proj", "o_proj", "down_proj"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapters", type=int, default=2000, help="registered adapters")
    parser.add_argument("--requests", type=int, default=600, help="requests for each figure")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each figure")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        names = build(directory, arguments.adapters)
        figures = {
            "slots": SLOTS,
            "registered": arguments.adapters,
            "throughput": throughput(directory, names, arguments.requests, arguments.rounds),
            "one_more_than_slots": one_more_than_slots(directory, names, arguments.requests, arguments.rounds),
            "one_slot": one_slot(directory, names),
        }
    show(figures)
    print(f"written to {write('many_adapters', figures)}")


def build(directory: Path, count: int) -> dict[str, Path]:
    """Save a base model and adapters: PEFT saves one of each rank, the others are copies of it with new weights."""
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(BASE_CONFIG)
    model.save_pretrained(directory / "base")
    patterns = {}
    for rank in set(RANKS):
        config = LoraConfig(r=rank, lora_alpha=rank, target_modules=TARGETS, init_lora_weights=False)
        wrapped = get_peft_model(model, config)
        wrapped.save_pretrained(directory / f"pattern{rank}")
        patterns[rank] = load_file(directory / f"pattern{rank}" / "adapter_model.safetensors")
        model = wrapped.unload()
    paths = {}
    for i in track(range(count), description="adapters"):
        rank = RANKS[i % len(RANKS)]
        paths[f"a{i}"] = path = directory / f"a{i}"
        path.mkdir()
        config_json = directory / f"pattern{rank}" / "adapter_config.json"
        (path / "adapter_config.json").write_bytes(config_json.read_bytes())
        tensors = {name: torch.randn_like(tensor) * 0.02 for name, tensor in patterns[rank].items()}
        save_file(tensors, path / "adapter_model.safetensors")
    return paths


def start(directory: Path, names: dict[str, Path], **config: Any) -> TimedEngine:
    settings = {"adapter_slots": SLOTS, "max_batch_size": SLOTS, "adapter_host_bytes": 8 << 30} | config
    engine = TimedEngine(directory / "base", directory / "cache", names, **settings)
    freeze_objects()  # as the server does
    return engine


def prompt(rng: random.Random) -> list[int]:
    return [rng.randrange(BASE_CONFIG.vocab_size) for _ in range(PROMPT)]


def throughput(directory: Path, names: dict[str, Path], requests: int, rounds: int) -> dict[str, Any]:
    """Return tokens per second with few adapters and with all, in turns on one engine."""
    engine = start(directory, names)
    everything = list(names)
    draws: dict[str, Callable[[random.Random], str]] = {
        f"{FEW} adapters": lambda rng: everything[rng.randrange(FEW)],
        f"{SLOTS} adapters": lambda rng: everything[rng.randrange(SLOTS)],  # distinct, but no loads
        f"{len(everything)} by Zipf's law": lambda rng: everything[_zipf(rng, len(everything))],
        f"{len(everything)} evenly": lambda rng: rng.choice(everything),
    }
    for name in track(everything, description="first use of each adapter"):
        engine.generate([1, 2, 3], name, max_tokens=1)
    speeds: dict[str, list[float]] = {case: [] for case in draws}
    for turn in track(range(rounds), description="throughput"):
        for case, draw in draws.items():
            rng = random.Random(turn)
            began = time.perf_counter()
            ids = [engine.submit(prompt(rng), draw(rng), max_tokens=NEW) for _ in range(requests)]
            for request in ids:
                engine.result(request)
            speeds[case].append(requests * NEW / (time.perf_counter() - began))
    loads = engine.core.adapters.counters.loads
    engine.close()
    few = speeds[f"{FEW} adapters"]
    return {
        "tokens_per_second": {case: round(statistics.median(each), 1) for case, each in speeds.items()},
        "ratio_to_few": {
            case: round(statistics.median(a / b for a, b in zip(each, few, strict=True)), 3)
            for case, each in speeds.items()
        },
        "loads_to_device": loads,
    }


def one_more_than_slots(directory: Path, names: dict[str, Path], requests: int, rounds: int) -> dict[str, Any]:
    """Return the time to first token in an open loop, with as many adapters as slots and with one more."""
    engine = start(directory, names)
    everything = list(names)[: SLOTS + 1]
    rng = random.Random(1)
    began = time.perf_counter()
    warm = [engine.submit(prompt(rng), everything[i % len(everything)], max_tokens=NEW) for i in range(SLOTS * 8)]
    for request in warm:
        engine.result(request)
    rate = len(warm) / (time.perf_counter() - began) / 2
    _open_loop(engine, everything, requests, rate, random.Random(-1))  # warm-up: oneDNN prepares each batch size once
    waits: dict[int, list[float]] = {SLOTS: [], SLOTS + 1: []}
    for turn in track(range(rounds), description="one more than slots"):
        for distinct, seconds in waits.items():
            ids = _open_loop(engine, everything[:distinct], requests, rate, random.Random(turn))
            seconds += [engine.first[i] - engine.submitted[i] for i in ids]
    engine.close()
    p99 = {distinct: statistics.quantiles(seconds, n=100)[98] for distinct, seconds in waits.items()}
    p50 = {distinct: statistics.median(seconds) for distinct, seconds in waits.items()}
    return {
        "requests_per_second": round(rate, 2),
        "first_token_ms_p50": {str(d): round(1000 * s, 1) for d, s in p50.items()},
        "first_token_ms_p99": {str(d): round(1000 * s, 1) for d, s in p99.items()},
        "p99_ratio": round(p99[SLOTS + 1] / p99[SLOTS], 2),
    }


def _open_loop(engine: TimedEngine, names: Sequence[str], count: int, rate: float, rng: random.Random) -> list[int]:
    """Submit at random times, independent of the engine's progress, then wait for all."""
    ids, due = [], time.perf_counter()
    for _ in range(count):
        due += rng.expovariate(rate)
        time.sleep(max(0.0, due - time.perf_counter()))
        ids.append(engine.submit(prompt(rng), rng.choice(names), max_tokens=NEW))
    for request in ids:
        engine.result(request)
    return ids


def one_slot(directory: Path, names: dict[str, Path]) -> dict[str, Any]:
    """Submit A, B, then only A; return how many of the later requests end before B's first token."""
    engine = start(directory, names, adapter_slots=1)
    a, b = list(names)[:2]
    rng = random.Random(2)
    first = [engine.submit(prompt(rng), a, max_tokens=NEW)]
    engine.wait_for(first[0], 2)
    late = engine.submit(prompt(rng), b, max_tokens=NEW)
    others = [engine.submit(prompt(rng), a, max_tokens=NEW) for _ in range(100)]
    for request in [late, *others]:
        engine.result(request)
    overtakers = sum(engine.done[request] < engine.first[late] for request in others)
    engine.close()
    return {"requests_for_a_behind_b": len(others), "of_them_ended_before_b_began": overtakers}


def _zipf(rng: random.Random, count: int) -> int:
    """Draw a rank from 0 with probability proportional to 1 / (rank + 1)."""
    return min(int(count ** rng.random()) - 1, count - 1)


def show(figures: dict[str, Any]) -> None:
    speed, wait = figures["throughput"], figures["one_more_than_slots"]
    table = Table("adapters", "tok/s", "ratio")
    for case, tokens in speed["tokens_per_second"].items():
        table.add_row(case, str(tokens), str(speed["ratio_to_few"][case]))
    console = Console()
    console.print(table)
    console.print(
        f"first token, p99: {wait['first_token_ms_p99']} ms, ratio {wait['p99_ratio']}; "
        f"one slot: {figures['one_slot']['of_them_ended_before_b_began']} of 100 ended before B began"
    )


if __name__ == "__main__":
    main()
