"""The cost of constraining completions to a JSON schema, per decode step.

An 88M-parameter Llama in float32 with a synthetic vocabulary of 32,768 words serves 16 or 64 concurrent requests of 48
new tokens each at temperature 1: none, half or all of them constrained to a schema. The cases take turns in each round.
The engine has one thread, and time is also counted in this process's CPU seconds, which other load on a shared machine
affects least: quote their ratios. A second table measures the masks alone, for vocabularies of 32,768 and 131,072.

    python -m benchmarks.engine.structured_output              # three rounds, a few minutes
    python -m benchmarks.engine.structured_output --rounds 1   # a quick look
"""

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.lib.report import write
from loragate.engine.grammar.compiler import GrammarCompiler
from loragate.engine.grammar.matcher import GrammarMatcher
from loragate.engine.grammar.spec import Grammar, GrammarKind
from loragate.engine.grammar.tokenizer import TokenSpace
from loragate.engine.local import LocalEngine
from loragate.engine.sampling.grammar_mask import TokenMask

BATCHES, PROMPT, NEW = (16, 64), 32, 48
SHARES = (0.0, 0.5, 1.0)
EOS = 0
VOCABULARY = 32_768
MASK_ROWS, MASK_STEPS = 64, 100
ITEM = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 9999},
        "kind": {"enum": ["order", "refund", "question"]},
        "label": {"type": "string", "maxLength": 40},
        "score": {"type": "number"},
        "open": {"type": ["boolean", "null"]},
    },
    "required": ["id", "kind", "label", "score", "open"],
    "additionalProperties": False,
}
SCHEMA = Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"type": "array", "items": ITEM, "minItems": 1000}))


@dataclass(frozen=True, slots=True)
class Duration:
    """Wall-clock and CPU seconds of one run."""

    wall: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each case")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        steps = measure_steps(Path(directory), arguments.rounds)
    figures = {"prompt_tokens": PROMPT, "new_tokens": NEW, "vocabulary": VOCABULARY, "steps": steps}
    figures["masks"] = [measure_masks(size) for size in (VOCABULARY, 4 * VOCABULARY)]
    show(figures)
    print(f"written to {write('structured_output', figures).relative_to(Path.cwd())}")


def synthetic_tokenizer(size: int) -> Tokenizer:
    """Return a byte-level tokenizer of EOS, all bytes, and words, numbers and punctuation of realistic lengths."""
    drawn = random.Random(0)
    vocabulary: dict[str, int] = {"</s>": EOS}
    for piece in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[piece] = len(vocabulary)
    letters, marks = "etaoinshrdlucmfwypvbgkqjxz", '{}[]",:.-_/\\'
    while len(vocabulary) < size:
        alphabet = drawn.choices((letters, "0123456789", marks), weights=(90, 5, 5))[0]
        word = "".join(drawn.choices(alphabet, k=drawn.choice((2, 2, 3, 4, 5, 6, 8, 11))))
        vocabulary.setdefault(drawn.choice(("Ġ", "")) + word, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    return tokenizer


def measure_steps(directory: Path, rounds: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        vocab_size=VOCABULARY,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=EOS,
    )
    LlamaForCausalLM(config).save_pretrained(directory / "base")
    synthetic_tokenizer(VOCABULARY).save(str(directory / "base" / "tokenizer.json"))
    engine = LocalEngine(
        directory / "base", directory / "cache", {}, kv_cache_tokens=1 << 14, max_batch_tokens=2048, threads=1
    )
    seconds: dict[tuple[int, float], list[Duration]] = defaultdict(list)
    for turn in track(range(rounds + 1), description="rounds; the first is a warm-up"):
        for batch in BATCHES:
            for share in SHARES:
                durations = run(engine, batch, round(batch * share))
                if turn:
                    seconds[batch, share].append(durations)
    engine.close()
    return [case(batch, share, seconds[batch, share], seconds[batch, 0.0]) for batch in BATCHES for share in SHARES]


def run(engine: LocalEngine, batch: int, constrained: int) -> Duration:
    """Run all requests, `constrained` of them with the schema."""
    start, start_cpu = time.perf_counter(), time.process_time()
    requests = [
        engine.submit(
            [5 + i] * PROMPT, grammar=SCHEMA if i < constrained else None, max_tokens=NEW, temperature=1.0, seed=i
        )
        for i in range(batch)
    ]
    for request in requests:
        engine.result(request)
    durations = Duration(time.perf_counter() - start, time.process_time() - start_cpu)
    assert all(len(engine.tokens(request)) == NEW for request in requests)
    return durations


def case(batch: int, share: float, durations: list[Duration], free: list[Duration]) -> dict[str, Any]:
    return {
        "requests": batch,
        "held_to_the_schema": round(batch * share),
        "ms_per_step": round(1000 * statistics.median(t.wall for t in durations) / NEW, 2),
        "cpu_ms_per_step": round(1000 * statistics.median(t.cpu for t in durations) / NEW, 2),
        "cpu_ratio_to_unconstrained": round(
            statistics.median(a.cpu / b.cpu for a, b in zip(durations, free, strict=True)), 3
        ),
    }


def measure_masks(size: int) -> dict[str, Any]:
    """Measure the masks of rows at different places in the schema; each row advances by a token drawn from its mask."""
    space = TokenSpace(synthetic_tokenizer(size).to_str().encode(), size, frozenset([EOS]))
    compiler = GrammarCompiler(space, torch.get_num_threads())
    start = time.perf_counter()
    matchers = [compiled(compiler).fork() for _ in range(MASK_ROWS)]
    first = time.perf_counter() - start
    logits = torch.randn(MASK_ROWS, size)
    drawn = np.random.default_rng(0)
    filling, applying = [], []
    for _ in range(MASK_STEPS):
        start = time.perf_counter()
        packed = compiler.masks.fill([matcher.allowed for matcher in matchers])
        filled = time.perf_counter()
        TokenMask(tuple(range(MASK_ROWS)), packed).forbid(logits)
        filling.append(filled - start)
        applying.append(time.perf_counter() - filled)
        for matcher, row in zip(matchers, packed, strict=True):
            allowed = np.unpackbits(row.view(np.uint8), bitorder="little").nonzero()[0]
            matcher.advance(int(drawn.choice(allowed)))
    compiler.close()
    return {
        "vocabulary": size,
        "rows": MASK_ROWS,
        "first_grammar_ms": round(1000 * first, 1),
        "fill_ms": {"median": ms(filling, 50), "p99": ms(filling, 99)},
        "apply_ms": {"median": ms(applying, 50), "p99": ms(applying, 99)},
    }


def compiled(compiler: GrammarCompiler) -> GrammarMatcher:
    done, results = threading.Event(), []
    compiler.compile("tenant", SCHEMA, lambda result: (results.append(result), done.set()))
    done.wait()
    assert isinstance(results[0], GrammarMatcher), results[0]
    return results[0]


def ms(seconds: list[float], percentile: int) -> float:
    return round(1000 * float(np.percentile(seconds, percentile)), 2)


def show(figures: dict[str, Any]) -> None:
    steps = Table("requests", "constrained", "ms per step", "CPU ms per step", "CPU, relative to unconstrained")
    for one in figures["steps"]:
        row = [str(one[name]) for name in ("requests", "held_to_the_schema", "ms_per_step", "cpu_ms_per_step")]
        steps.add_row(*row, f"{one['cpu_ratio_to_unconstrained']}×")
    masks = Table("vocabulary", "rows", "first grammar, ms", "fill, ms (p99)", "apply, ms (p99)")
    for one in figures["masks"]:
        fill, apply = (f"{one[name]['median']} ({one[name]['p99']})" for name in ("fill_ms", "apply_ms"))
        masks.add_row(str(one["vocabulary"]), str(one["rows"]), str(one["first_grammar_ms"]), fill, apply)
    Console().print(steps, masks)


if __name__ == "__main__":
    main()
