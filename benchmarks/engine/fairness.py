"""The effect of one tenant's flood of requests on another tenant's latency, and the cost of fairness in throughput.

One tenant submits 64 long requests over 10 adapters at once; another sends short ones, one at a time, before and
during the flood. *Fair*: two tenants, all settings at their defaults. *Unbounded*: without `engine.max_slowdown`.
*First come, first served*: the same requests from one tenant, scheduled by age. The cases take turns in each round, and
ratios are taken within a round, so that a drift in the machine's speed affects all cases alike.

    python -m benchmarks.engine.fairness              # three rounds, two minutes on an idle machine
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
from loragate.engine.config import EngineOptions
from loragate.engine.local import LocalEngine

ADAPTERS, RANKS = 10, (8, 16)
FLOOD, FLOOD_PROMPT, FLOOD_NEW = 64, 64, (80, 144)  # lengths differ, so that seats become free one by one
GUEST_PROMPT, GUEST_NEW, SOLO = 32, 32, 30
SEATS = EngineOptions().max_batch_size
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
    """The guest's latencies in seconds during the flood, and the tokens per second of both tenants together."""

    latencies: list[float]
    tokens_per_second: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each case")
    parser.add_argument("--seats", type=int, default=SEATS, help="maximum sequences in a step (engine.max_batch_size)")
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
        adapter_slots=ADAPTERS,
        max_batch_size=seats,
    )
    pace = engine.core.scheduler.pace
    bound = pace.max_slowdown
    solo: list[list[float]] = []
    fair: list[Flood] = []
    unbounded: list[Flood] = []
    by_age: list[Flood] = []
    for turn in track(range(rounds + 1), description="rounds; the first is a warm-up"):
        alone = [guest(engine, i, "guest") for i in range(SOLO if turn else 4)]
        together = flood(engine, "guest", FLOOD if turn else ADAPTERS)
        pace.max_slowdown = None
        free = flood(engine, "guest", FLOOD if turn else ADAPTERS)
        pace.max_slowdown = bound
        queued = flood(engine, "flood", FLOOD if turn else ADAPTERS)
        if turn:
            solo.append(alone)
            fair.append(together)
            unbounded.append(free)
            by_age.append(queued)
    preemptions = engine.core.scheduler.preemptions
    engine.close()
    settings = {"seats": seats, "max_slowdown": bound, "threads": engine.core.governor.threads}
    return summarize(solo, fair, unbounded, by_age) | settings | {"preemptions": preemptions}


def build(directory: Path) -> dict[str, Path]:
    """Save a random base model with transformers and random adapters with PEFT."""
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
    """Run one short request; return its duration in seconds."""
    start = time.perf_counter()
    request = engine.submit(prompt(number, GUEST_PROMPT), None, max_tokens=GUEST_NEW, tenant=tenant)
    engine.result(request)
    return time.perf_counter() - start


def flood(engine: LocalEngine, other: str, size: int) -> Flood:
    """Submit long requests at once, then short ones of the other tenant one by one until all long ones have ended."""
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
    """Return the new tokens of a long request: uniform over FLOOD_NEW, in a scrambled order."""
    low, high = FLOOD_NEW
    return low + number * 37 % (high - low + 1)


def prompt(number: int, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(number)
    return torch.randint(3, BASE_CONFIG.vocab_size, (length,), generator=generator).tolist()


def summarize(
    solo: list[list[float]], fair: list[Flood], unbounded: list[Flood], by_age: list[Flood]
) -> dict[str, Any]:
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
        "guest_unbounded": latency([f.latencies for f in unbounded]),
        "guest_by_age": latency([f.latencies for f in by_age]),
        "p50_fair_over_alone": median_ratio([f.latencies for f in fair], solo, 50),
        "p99_fair_over_alone": median_ratio([f.latencies for f in fair], solo),
        "p50_unbounded_over_alone": median_ratio([f.latencies for f in unbounded], solo, 50),
        "p99_unbounded_over_alone": median_ratio([f.latencies for f in unbounded], solo),
        "p99_by_age_over_alone": median_ratio([f.latencies for f in by_age], solo),
        "tokens_per_second": {
            name: round(statistics.median(f.tokens_per_second for f in floods), 1)
            for name, floods in (("fair", fair), ("unbounded", unbounded), ("by_age", by_age))
        },
        "throughput_fair_over_unbounded": throughput_ratio(fair, unbounded),
        "throughput_fair_over_by_age": throughput_ratio(fair, by_age),
    }


def throughput_ratio(over: list[Flood], under: list[Flood]) -> float:
    """Return the median over rounds of the ratio of the tokens per second."""
    ratios = [a.tokens_per_second / b.tokens_per_second for a, b in zip(over, under, strict=True)]
    return round(statistics.median(ratios), 3)


def median_ratio(over: list[list[float]], under: list[list[float]], percent: int = 99) -> float:
    """Return the median over rounds of the ratio of these percentiles."""
    ratios = [percentile(a, percent) / percentile(b, percent) for a, b in zip(over, under, strict=True)]
    return round(statistics.median(ratios), 2)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the nearest-rank percentile."""
    return sorted(values)[-(-len(values) * percent // 100) - 1]


def show(figures: dict[str, Any]) -> None:
    table = Table("the guest's requests", "p50, ms", "p99, ms", "p99 relative to alone")
    rows = [("alone", "guest_alone", 1.0), ("fair", "guest_fair", figures["p99_fair_over_alone"])]
    rows.append(("unbounded", "guest_unbounded", figures["p99_unbounded_over_alone"]))
    rows.append(("by age", "guest_by_age", figures["p99_by_age_over_alone"]))
    for name, key, ratio in rows:
        table.add_row(name, str(figures[key]["p50_ms"]), str(figures[key]["p99_ms"]), f"{ratio}×")
    console = Console()
    console.print(table)
    relative = figures["throughput_fair_over_unbounded"], figures["throughput_fair_over_by_age"]
    console.print(f"tokens/s: {figures['tokens_per_second']}, fair relative to unbounded and by age: {relative}")


if __name__ == "__main__":
    main()
