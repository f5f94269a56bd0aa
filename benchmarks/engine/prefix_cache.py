"""The gain of the prefix cache when prompts share a long system prompt, and its cost when they share nothing.

A 19M-parameter Llama in float32, greedy. Two engines, one with the cache and one without, take turns. Wall-clock times
are what a client sees; on a machine that does other work, quote the ratio of CPU times.

- *chat*: time to first token of sequential requests, each with a system prompt of 1,024 tokens and its own question;
- *burst*: 16 such requests at once, with a system prompt that is not cached yet;
- *nothing shared*: 16 prompts of 256 tokens at once that differ from their first token on;
- *bookkeeping*: the time that one decode step of 64 sequences spends on publishing blocks, without a model.

    python -m benchmarks.engine.prefix_cache            # under two minutes
"""

import argparse
import itertools
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.lib.report import write
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.kv_cache.host_tier import KVHostTier
from loragate.engine.kv_cache.prefix_cache import PrefixCache
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.kv_cache import LayerCache

SYSTEM, QUESTION, NEW, UNSHARED = 1024, 24, 16, 256
CHATS, BURST = 4, 16
BASE_CONFIG = LlamaConfig(
    hidden_size=384,
    intermediate_size=1024,
    num_hidden_layers=8,
    num_attention_heads=6,
    num_key_value_heads=2,
    vocab_size=8192,
    max_position_embeddings=2048,
    initializer_range=0.05,
)

Outputs = list[list[int]]
Workload = Callable[[LocalEngine, random.Random], tuple[list[float], Outputs]]
"""Runs on one engine; returns the measured seconds and the generated tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="turns of each engine at each workload")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), arguments.rounds)
    figures["bookkeeping_us_per_decode_step_of_64"] = round(bookkeeping(), 1)
    show(figures)
    print(f"written to {write('prefix_cache', figures).relative_to(Path.cwd())}")


def measure(directory: Path, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    LlamaForCausalLM(BASE_CONFIG).save_pretrained(directory / "base")
    engines = {
        name: LocalEngine(directory / "base", directory / "cache", {}, prefix_cache=on, kv_cache_tokens=32_768)
        for name, on in (("off", False), ("on", True))
    }
    workloads: dict[str, Workload] = {"chat": chat, "burst": burst, "nothing_shared": nothing_shared}
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    cpu: dict[tuple[str, str], float] = defaultdict(float)
    same: dict[str, list[bool]] = defaultdict(list)
    for turn, (label, run) in itertools.product(range(rounds + 1), workloads.items()):
        outputs = {}
        for name in sorted(engines, reverse=turn % 2 == 0):
            started = time.process_time()
            times, outputs[name] = run(engines[name], random.Random(f"{label} {turn}"))
            if turn:  # the first is a warm-up
                seconds[label, name] += times
                cpu[label, name] += time.process_time() - started
        same[label] += [a == b for a, b in zip(outputs["on"], outputs["off"], strict=True)]
    for engine in engines.values():
        engine.close()
    cases = {label: summary(seconds[label, "off"], seconds[label, "on"], same[label]) for label in workloads}
    for label, case in cases.items():
        case["cpu_time_ratio"] = round(cpu[label, "off"] / cpu[label, "on"], 2)
    return {
        "system_prompt_tokens": SYSTEM,
        "question_tokens": QUESTION,
        "new_tokens": NEW,
        **cases,
    }


def chat(engine: LocalEngine, rng: random.Random) -> tuple[list[float], Outputs]:
    """Return the seconds to the first token of each request but the first."""
    system, times, outputs = tokens(rng, SYSTEM), [], []
    for _ in range(CHATS + 1):
        start = time.perf_counter()
        request = submit(engine, system + tokens(rng, QUESTION))
        engine.wait_for(request, 1)
        times.append(time.perf_counter() - start)
        engine.result(request)
        outputs.append(engine.tokens(request))
    return times[1:], outputs


def burst(engine: LocalEngine, rng: random.Random) -> tuple[list[float], Outputs]:
    """Return the seconds until all requests have ended."""
    system = tokens(rng, SYSTEM)
    return at_once(engine, [system + tokens(rng, QUESTION) for _ in range(BURST)])


def nothing_shared(engine: LocalEngine, rng: random.Random) -> tuple[list[float], Outputs]:
    """Return the seconds until all requests have ended."""
    return at_once(engine, [tokens(rng, UNSHARED) for _ in range(BURST)])


def at_once(engine: LocalEngine, prompts: Outputs) -> tuple[list[float], Outputs]:
    start = time.perf_counter()
    requests = [submit(engine, prompt) for prompt in prompts]
    for request in requests:
        engine.result(request)
    return [time.perf_counter() - start], [engine.tokens(request) for request in requests]


def submit(engine: LocalEngine, prompt: list[int]) -> int:
    return engine.submit(prompt, max_tokens=NEW, cache_salt=b"one tenant")


def tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(3, BASE_CONFIG.vocab_size) for _ in range(count)]


def summary(off: list[float], on: list[float], same: list[bool]) -> dict[str, Any]:
    """Return medians, and how many requests gave the same tokens with and without the cache."""
    before, after = statistics.median(off), statistics.median(on)
    return {
        "off_ms": round(before * 1000, 1),
        "on_ms": round(after * 1000, 1),
        "speedup": round(before / after, 2),
        "identical_outputs": f"{sum(same)}/{len(same)}",
    }


def bookkeeping(sequences: int = 64, steps: int = 512, block_size: int = 16) -> float:
    """Return the CPU microseconds per step for publishing generated blocks, all of them new."""
    blocks = sequences * (steps // block_size + 1)
    cache = LayerCache((blocks + 1) * block_size, 1, 1, 1, torch.float32, torch.device("cpu"))
    pool = BlockPool(blocks, block_size, PrefixCache("base", block_size, KVHostTier([cache], block_size, 0)))
    sampling = SamplingParams(max_tokens=steps, seed=0)
    batch = [Sequence(Request(0, i, (i,), None, sampling, cache_salt=b"salt"), 0) for i in range(sequences)]
    for i, sequence in enumerate(batch):
        sequence.tokens += range(i % block_size)  # in a running engine blocks fill at different steps
    spent = 0.0
    for step in range(steps - block_size):
        for sequence in batch:
            pool.grow(sequence, sequence.computed + 1)
            sequence.computed += 1
            sequence.tokens.append(step)
        start = time.thread_time()
        for sequence in batch:
            pool.publish(sequence)
        spent += time.thread_time() - start
    return spent / (steps - block_size) * 1e6


def show(figures: dict[str, Any]) -> None:
    table = Table("workload", "cache off, ms", "cache on, ms", "speed-up", "CPU time", "same output")
    for label in ("chat", "burst", "nothing_shared"):
        case = figures[label]
        ratios = [f"{case[key]}×" for key in ("speedup", "cpu_time_ratio")]
        table.add_row(label, str(case["off_ms"]), str(case["on_ms"]), *ratios, case["identical_outputs"])
    Console().print(table)
    print(
        f"publishing blocks takes {figures['bookkeeping_us_per_decode_step_of_64']} µs of a decode step of 64 sequences"
    )


if __name__ == "__main__":
    main()
