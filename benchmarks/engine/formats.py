"""Perplexity and memory of the demo's base model in each weight and KV cache format.

The demo's model (5.3M parameters) reads held-out text from its training distribution through the packed, paged engine;
each format is compared with float32 over the same tokens. A small model is the hard case: each of its weights carries
more information than one of a large model.

    python -m benchmarks.engine.formats
"""

import argparse
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tokenizers import Tokenizer

from benchmarks.lib.report import write
from loragate.demo import shipped_assets
from loragate.demo.corpus import base_samples
from loragate.demo.tokenizer import encode
from loragate.engine.layers.quantization import is_quantized
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.request import Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.startup.kv_allocation import STORAGE

FORMATS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8 weights": {"quantization": "int8"},
    "fp8 weights and inputs": {"quantization": "fp8"},
    "NF4 weights": {"quantization": "nf4"},
    "int8 cache": {"kv_cache_dtype": "int8"},
    "fp8 cache": {"kv_cache_dtype": "fp8"},
    "NF4 weights, int8 cache": {"quantization": "nf4", "kv_cache_dtype": "int8"},
}
HELD_OUT_SEED = 1_000_003  # the demo trains with small seeds
TEXTS = 200

Text = tuple[list[int], list[bool]]
"""Token ids, and a mask of those that count towards the loss: answers, not questions."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        assets = shipped_assets()
        texts = list(held_out(assets.model_dir))
        figures = {
            name: measure(assets.model_dir, Path(folder) / "cache", texts, config)
            for name, config in track(FORMATS.items(), description="formats")
        }
    exact = figures["float32"]["perplexity"]
    for each in figures.values():
        each["perplexity_change_percent"] = round(100 * (each["perplexity"] / exact - 1), 2)
    show(figures)
    write("formats", {"texts": TEXTS, "formats": figures})


def held_out(model_dir: Path) -> Iterator[Text]:
    """Yield samples like those of its corpus, from another seed."""
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    samples = base_samples(HELD_OUT_SEED)
    for _ in range(TEXTS):
        yield encode(tokenizer, next(samples))


def measure(model_dir: Path, cache_dir: Path, texts: list[Text], config: dict[str, Any]) -> dict[str, Any]:
    engine = LocalEngine(model_dir, cache_dir, {}, prefix_cache=False, kv_cache_tokens=1024, **config)
    losses = [_loss(engine, *text) for text in texts]
    base = engine.loaded.base
    linears = [m for m in base.model.modules() if is_quantized(m) or type(m).__name__ == "LoraLinear"]
    weights = {p.data_ptr(): p.nbytes for m in linears for p in m.parameters(recurse=False)}
    engine.close()
    return {
        "perplexity": round(math.exp(sum(losses) / len(losses)), 4),
        "bytes_of_linears": sum(weights.values()),
        "cache_bytes_per_token": base.kv_bytes_per_token(STORAGE[engine.config.kv_cache_dtype]),
    }


@torch.inference_mode()
def _loss(engine: LocalEngine, ids: list[int], in_loss: list[bool]) -> float:
    """Return the mean negative log-likelihood of the masked tokens, computed as draft tokens of one step."""
    sequence = Sequence(Request(0, 0, tuple(ids[:1]), None, SamplingParams(max_tokens=1, seed=0)), 0)
    sequence.draft = ids[1:]
    assert engine.core.blocks.grow(sequence, len(ids))
    logits = engine.core._runner.execute({sequence: len(ids)}).logits
    engine.core.blocks.release(sequence)
    logprobs = logits[:-1].float().log_softmax(-1)
    each = -logprobs.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return float(each[torch.tensor(in_loss[1:])].mean())


def show(figures: dict[str, Any]) -> None:
    table = Table("format", "perplexity", "change", "bytes of linears", "cache bytes per token")
    for name, each in figures.items():
        change = f"{each['perplexity_change_percent']:+.2f} %"
        memory = str(each["bytes_of_linears"]), str(each["cache_bytes_per_token"])
        table.add_row(name, str(each["perplexity"]), change, *memory)
    Console().print(table)


if __name__ == "__main__":
    main()
