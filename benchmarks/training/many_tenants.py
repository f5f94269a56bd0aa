"""Tokens per second of training, with eight tenants in one step against one adapter after the other.

Each tenant has an adapter (ranks 8 to 32, all linears and the head) and two rows of 16 to 512 tokens: a forward and a
backward pass and a step of AdamW. *Together*: all in one call of the trainer. *One by one*: a call for each tenant.
*PEFT*: adapters are swapped with `set_adapter`, and `torch.optim.AdamW` steps. The
three take turns, and the fastest turn of each counts, because a busy machine only slows them. Models are random Llamas.

    python -m benchmarks.training.many_tenants              # five minutes
    python -m benchmarks.training.many_tenants --rounds 3   # a quick look
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from rich.console import Console
from rich.table import Table
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.lib.report import write
from loragate.engine.config import EngineConfig
from loragate.trainer.trainer import AdamParams, Datum, ForwardBackward, LoraSettings, Trainer, TrainingRejected

TENANTS = 8
ROWS = 2
LENGTHS = (16, 32, 64, 128, 256, 512)
_FULL_ROUNDS = 64  # the length from which on there are fewer turns, to three of the longest
RANKS = (8, 16, 8, 16, 8, 32, 8, 16)
PARAMS = AdamParams(learning_rate=1e-4)
MODELS = {  # hidden size, layers, vocabulary
    "1 M parameters": (128, 4, 2048),
    "4 M parameters": (192, 6, 4096),
}
Data = Mapping[str, tuple[Datum, ...]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="turns of each way")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for name, size in MODELS.items():
        for length in LENGTHS:
            with tempfile.TemporaryDirectory() as directory:
                rounds = max(min(3, arguments.rounds), min(arguments.rounds, arguments.rounds * _FULL_ROUNDS // length))
                figures[f"{name}, rows of {length}"] = measure(Path(directory), size, length, rounds)
    show(figures)
    print(f"written to {write('training_many_tenants', figures).relative_to(Path.cwd())}")


def measure(root: Path, size: tuple[int, int, int], length: int, rounds: int) -> dict[str, float]:
    """Return the tokens per second of each way, and how many times faster the first one is."""
    base = build(root / "base", size)
    data = sequences(size[2], length)
    trainer = Trainer.load(base, EngineConfig(model=str(base), listen="", cache_dir=root / "cache", device="cpu"))
    for seed, (name, rank) in enumerate(zip(data, RANKS, strict=True)):
        trainer.create(name, LoraSettings(rank=rank, seed=seed))
    ways: dict[str, Callable[[], None]] = {
        "together": lambda: train(trainer, data),
        "one by one": lambda: [train(trainer, {name: rows}) for name, rows in data.items()] and None,
        "PEFT": swapping(trainer, base, root, data),
    }
    fastest: dict[str, float] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            fastest[name] = min(fastest.get(name, float("inf")), time.perf_counter() - start)
    tokens = sum(each.tokens.shape[0] for rows in data.values() for each in rows)
    rates = {f"{name}, tokens/s": round(tokens / seconds) for name, seconds in fastest.items()}
    ratios = {f"together / {name}": round(fastest[name] / fastest["together"], 2) for name in ("one by one", "PEFT")}
    return {**rates, **ratios}


def build(folder: Path, size: tuple[int, int, int]) -> Path:
    hidden, layers, vocabulary = size
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama",
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 64,
        vocab_size=vocabulary,
        max_position_embeddings=512,
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


def sequences(vocabulary: int, length: int) -> Data:
    random = np.random.default_rng(0)

    def sequence() -> Datum:
        return Datum(random.integers(0, vocabulary, length), {"target_tokens": random.integers(0, vocabulary, length)})

    return {f"tenant {number}": tuple(sequence() for _ in range(ROWS)) for number in range(TENANTS)}


def train(trainer: Trainer, data: Data) -> None:
    requests = [ForwardBackward(name, rows, "cross_entropy", {}, False) for name, rows in data.items()]
    for result in trainer.forward_backward(requests):
        if isinstance(result, TrainingRejected):
            raise result
    for name in data:
        trainer.optim_step(name, PARAMS)


def swapping(trainer: Trainer, base: Path, root: Path, data: Data) -> Callable[[], None]:
    """Return a turn of PEFT with the same adapters and data."""
    model: Any = None
    for name in data:
        folder = root / name
        folder.mkdir()
        config, tensors = trainer.export(name)
        (folder / "adapter_config.json").write_bytes(config)
        (folder / "adapter_model.safetensors").write_bytes(tensors)
        if model is None:
            plain = AutoModelForCausalLM.from_pretrained(base)
            model = PeftModel.from_pretrained(plain, folder, adapter_name=name, is_trainable=True).eval()
        else:
            model.load_adapter(folder, adapter_name=name, is_trainable=True)
    batches = {name: stacked(rows) for name, rows in data.items()}
    optimizers = {}
    for name in data:
        parameters = [parameter for path, parameter in model.named_parameters() if f".{name}." in path]
        optimizers[name] = torch.optim.AdamW(parameters, PARAMS.learning_rate, (0.9, 0.95), PARAMS.eps, 0.0)

    def turn() -> None:
        for name, (tokens, targets) in batches.items():
            model.set_adapter(name)
            logits = model(input_ids=tokens, use_cache=False).logits
            logprobs = logits.log_softmax(dim=-1).gather(2, targets[..., None])
            (-logprobs.sum()).backward()
            optimizers[name].step()
            optimizers[name].zero_grad()

    return turn


def stacked(rows: tuple[Datum, ...]) -> tuple[Tensor, Tensor]:
    """Return tokens and targets, [rows, length]."""
    tokens = np.stack([each.tokens for each in rows])
    targets = np.stack([each.inputs["target_tokens"] for each in rows])
    return torch.from_numpy(tokens), torch.from_numpy(targets)


def show(figures: Mapping[str, Mapping[str, float]]) -> None:
    table = Table("", *next(iter(figures.values())))
    for name, row in figures.items():
        table.add_row(name, *(f"{value:,}" for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
