"""Tokens per second of the whole product beside other processes, through HTTP.

`loragate serve` runs with its defaults, so that the engine shares the processors with gateway, panel and fine-tune
worker, and with the clients of this benchmark. Model, cases and neighbours are those of
`benchmarks/engine/neighbours.py`; 16 connections send one request after another. *Governed* is the default, and *all
threads* fixes `engine.threads`. Ratios are taken within a round.

    python -m benchmarks.gateway.neighbours              # three rounds, six minutes
    python -m benchmarks.gateway.neighbours --rounds 1   # a quick look
"""

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.engine.cpu import BASE_CONFIG, NEW, PROMPT, REQUESTS
from benchmarks.engine.neighbours import BUSY, CORES, NICED, QUIET, neighbour
from benchmarks.gateway.load import Request, load
from benchmarks.lib.product import ADMIN_KEY, serving
from benchmarks.lib.report import write

SECONDS = 15.0
CASES = (QUIET, BUSY, NICED)
GOVERNED, FIXED = "governed", "all threads"
THREADS: dict[str, dict[str, str]] = {GOVERNED: {}, FIXED: {"LORAGATE_ENGINE__THREADS": str(CORES)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="windows of each case")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = build(Path(folder))
        rates = {
            name: measure(name, base, Path(folder) / f"data-{i}", arguments.rounds) for i, name in enumerate(THREADS)
        }
    figures = summarize(rates)
    show(figures)
    print(f"written to {write('gateway_neighbours', figures).relative_to(Path.cwd())}")


def build(folder: Path) -> Path:
    """Save a random base model whose tokens are the words `w0`, `w1` and so on."""
    torch.manual_seed(0)
    base = folder / "base"
    LlamaForCausalLM(BASE_CONFIG).save_pretrained(base)
    words = {f"w{i}": i for i in range(BASE_CONFIG.vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0").save_pretrained(base)
    return base


def measure(name: str, base: Path, data_dir: Path, rounds: int) -> dict[str, list[float]]:
    """Return the tokens per second of each window, by case."""
    rates = defaultdict(list)
    with completions(base, data_dir, THREADS[name]) as request:
        load(request, connections=REQUESTS, seconds=1.0)
        for _ in track(range(rounds), description=f"rounds, {name}"):
            for case in CASES:
                with neighbour(case):
                    window = load(request, connections=REQUESTS, seconds=SECONDS)
                rates[case].append(window["per_second"] * NEW)
    return rates


@contextmanager
def completions(base: Path, data_dir: Path, settings: dict[str, str]) -> Iterator[Request]:
    """Run `loragate serve` within the block; yield a completion of a tenant."""
    with serving(data_dir, "--model", str(base), settings=settings | {"LORAGATE_ADMIN_KEY": ADMIN_KEY}) as product:
        key = product.add_tenant("bench")
        with product.client(key) as client:
            model = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        tokens = torch.randint(3, BASE_CONFIG.vocab_size, (PROMPT,), generator=torch.Generator().manual_seed(1))
        body = {"model": model, "prompt": tokens.tolist(), "max_tokens": NEW, "temperature": 0, "ignore_eos": True}
        yield Request(product.port, "/v1/completions", {"authorization": f"Bearer {key}"}, body)


def summarize(rates: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Return medians, and the ratios of each case to the quiet one in the same round."""
    cases = [
        {
            "case": case,
            "tokens_per_second": {name: round(statistics.median(found[case]), 1) for name, found in rates.items()},
            "over_quiet": {
                name: round(statistics.median(a / b for a, b in zip(found[case], found[QUIET], strict=True)), 3)
                for name, found in rates.items()
            },
        }
        for case in CASES
    ]
    settings = {"connections": REQUESTS, "prompt_tokens": PROMPT, "new_tokens": NEW, "seconds": SECONDS, "cores": CORES}
    return settings | {"cases": cases}


def show(figures: dict[str, Any]) -> None:
    table = Table("beside", *(f"{name}, tok/s" for name in THREADS), "relative to quiet")
    for case in figures["cases"]:
        ratios = ", ".join(f"{name} {ratio}" for name, ratio in case["over_quiet"].items())
        table.add_row(case["case"], *map(str, case["tokens_per_second"].values()), ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
