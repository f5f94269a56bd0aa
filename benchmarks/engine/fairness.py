"""What a tenant feels of another one's flood, and what fairness costs in throughput.

One tenant submits 64 long requests over 10 adapters at once; another sends short ones, one at a time, before and
during the flood. *Fair*: two tenants. *First come, first served*: the same requests as one tenant's, whose turns
go by age. The cases take turns, round by round, and quotients are taken within a round, so that a machine whose speed
drifts is fair to all.

    python -m benchmarks.engine.fairness              # three rounds, two minutes on one idle core
    python -m benchmarks.engine.fairness --rounds 1   # a quick look
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.lib.report import write
from loragate.engine.local import LocalEngine

ADAPTERS, RANKS = 10, (8, 16)
FLOOD, FLOOD_PROMPT, FLOOD_NEW = 64, 64, (80, 144)  # lengths differ, so that seats fall free one by one
GUEST_PROMPT, GUEST_NEW, SOLO = 32, 32, 30
STEP_MS = 40
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
BASE_CONFIG = LlamaConfig(
    hidden_size=384,
    intermediate_size=1024,
    num_hidden_layers=6,
    num_attention_heads=6,
    num_key_value_heads=2,
    vocab_size=2048,
    max_position_embeddings=512,
    initializer_range=0.05,
)


@dataclass(frozen=True)
class Flood:
    """The guest's latencies in seconds while the flood ran, and the tokens a second of both together."""

    latencies: list[float]
    tokens_per_second: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each case has its turn")
    parser.add_argument("--seats", type=int, default=16, help="sequences of a step (engine.max_batch_size)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), arguments.rounds, arguments.seats)
    show(figures)
    print(f"written to {write('fairness', figures).relative_to(Path.cwd())}")


def measure(directory: Path, rounds: int, seats: int) -> dict[str, Any]:
    adapters = build(directory)
    engine = LocalEngine(
        directory / "base",
        directory / "cache",
        adapters,
        threads=1,
        adapter_slots=ADAPTERS,
        max_batch_size=seats,
        max_step_ms=STEP_MS,
    )
    solo: list[list[float]] = []
    fair: list[Flood] = []
    by_age: list[Flood] = []
    for turn in track(range(rounds + 1), description="rounds, the first to warm up"):
        alone = [guest(engine, i, "guest") for i in range(SOLO if turn else 4)]
        together = flood(engine, "guest", FLOOD if turn else ADAPTERS)
        queued = flood(engine, "flood", FLOOD if turn else ADAPTERS)
        if turn:
            solo.append(alone)
            fair.append(together)
            by_age.append(queued)
    preemptions = engine.core.scheduler.preemptions
    engine.close()
    return summarise(solo, fair, by_age) | {"seats": seats, "max_step_ms": STEP_MS, "preemptions": preemptions}


def build(directory: Path) -> dict[str, Path]:
    """The base model and its adapters, random, as transformers and PEFT save them."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(BASE_CONFIG)
    model.save_pretrained(directory / "base")
    paths = {}
    for i in range(ADAPTERS):
        config = LoraConfig(r=RANKS[i % len(RANKS)], lora_alpha=16, target_modules=TARGETS, init_lora_weights=False)
        wrapped = get_peft_model(model, config)
        paths[f"a{i}"] = directory / f"a{i}"
        wrapped.save_pretrained(paths[f"a{i}"])
        model = wrapped.unload()
    return paths


def guest(engine: LocalEngine, number: int, tenant: str) -> float:
    """One short request from submission to end, in seconds."""
    start = time.perf_counter()
    request = engine.submit(prompt(number, GUEST_PROMPT), None, max_tokens=GUEST_NEW, tenant=tenant)
    engine.result(request)
    return time.perf_counter() - start


def flood(engine: LocalEngine, other: str, size: int) -> Flood:
    """Long requests at once; the other tenant's follow one by one until all of them are through."""
    start = time.perf_counter()
    lengths = [length(i) for i in range(size)]
    requests = [
        engine.submit(prompt(i, FLOOD_PROMPT), f"a{i % ADAPTERS}", max_tokens=new, tenant="flood")
        for i, new in enumerate(lengths)
    ]
    engine.wait_for(requests[0], 1)
    latencies: list[float] = []
    while not all(engine.ended(request) for request in requests):
        latencies.append(guest(engine, len(latencies), other))
    tokens = sum(lengths) + len(latencies) * GUEST_NEW
    return Flood(latencies, tokens / (time.perf_counter() - start))


def length(number: int) -> int:
    """New tokens of a long request: evenly spread, in no order."""
    least, most = FLOOD_NEW
    return least + number * 37 % (most - least + 1)


def prompt(number: int, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(3, BASE_CONFIG.vocab_size, (length,), generator=generator).tolist()


def summarise(solo: list[list[float]], fair: list[Flood], by_age: list[Flood]) -> dict[str, Any]:
    def latency(samples: Sequence[list[float]]) -> dict[str, Any]:
        together = [value for values in samples for value in values]
        return {
            "requests": len(together),
            "p50_ms": round(1000 * percentile(together, 50), 1),
            "p99_ms": round(1000 * percentile(together, 99), 1),
        }

    return {
        "flood": {"requests": FLOOD, "adapters": ADAPTERS, "prompt_tokens": FLOOD_PROMPT, "new_tokens": FLOOD_NEW},
        "guest": {"prompt_tokens": GUEST_PROMPT, "new_tokens": GUEST_NEW},
        "guest_alone": latency(solo),
        "guest_fair": latency([f.latencies for f in fair]),
        "guest_by_age": latency([f.latencies for f in by_age]),
        "p99_fair_over_alone": median_ratio([f.latencies for f in fair], solo),
        "p99_by_age_over_alone": median_ratio([f.latencies for f in by_age], solo),
        "tokens_per_second": {
            "fair": round(statistics.median(f.tokens_per_second for f in fair), 1),
            "by_age": round(statistics.median(f.tokens_per_second for f in by_age), 1),
        },
        "throughput_fair_over_by_age": round(
            statistics.median(f.tokens_per_second / a.tokens_per_second for f, a in zip(fair, by_age, strict=True)), 3
        ),
    }


def median_ratio(over: list[list[float]], under: list[list[float]]) -> float:
    """Of the 99th percentiles, round by round."""
    ratios = [percentile(a, 99) / percentile(b, 99) for a, b in zip(over, under, strict=True)]
    return round(statistics.median(ratios), 2)


def percentile(values: Sequence[float], percent: int) -> float:
    """The nearest-rank percentile: of few values the greatest."""
    return sorted(values)[-(-len(values) * percent // 100) - 1]


def show(figures: dict[str, Any]) -> None:
    table = Table("the guest's requests", "p50, ms", "p99, ms", "p99 against alone")
    rows = [("alone", "guest_alone", 1.0), ("fair", "guest_fair", figures["p99_fair_over_alone"])]
    rows.append(("by age", "guest_by_age", figures["p99_by_age_over_alone"]))
    for name, key, ratio in rows:
        table.add_row(name, str(figures[key]["p50_ms"]), str(figures[key]["p99_ms"]), f"{ratio}×")
    console = Console()
    console.print(table)
    console.print(
        f"tokens/s: {figures['tokens_per_second']}, fair against by age {figures['throughput_fair_over_by_age']}"
    )


if __name__ == "__main__":
    main()
