"""Comparison of QLoRA, LoRA and full fine-tuning with the same samples, batches and steps, each in its own process."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.finetune.style_dataset import examples_file
from benchmarks.lib.svg import Bar, curves, stacked
from loragate.demo import shipped_assets
from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.formats import Method
from loragate.finetune.data.token_cache import CachedFile, TokenCache
from loragate.finetune.data.token_file import TokenFile, TokenFileWriter
from loragate.finetune.data.tokenization_config import TokenizationConfig, tokenization_config
from loragate.finetune.jobs.hyperparameters import Hyperparameters
from loragate.finetune.jobs.recipe import BaseFacts, DataFacts, resolve_recipe
from loragate.v1 import engine_pb2 as pb

METHODS = ("qlora", "lora", "full")
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
LENGTH = 128  # maximum tokens of a sample
LARGER = LlamaConfig(
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=20,
    num_attention_heads=16,
    num_key_value_heads=8,
    vocab_size=32_000,
    max_position_embeddings=512,
    tie_word_embeddings=True,
)
_PARTS = ("weights", "gradients", "optimizer")


@dataclass(frozen=True)
class Case:
    """A base model and its training data. `full_rate` is the learning rate of full fine-tuning."""

    name: str
    base: Path
    train: TokenFile
    valid: TokenFile | None
    epochs: int
    batch: int
    full_rate: float

    def run(self, method: str, folder: Path, threads: int) -> dict[str, Any]:
        """Run `method_worker` with one method; return its figures."""
        config = AutoConfig.from_pretrained(self.base)
        facts = BaseFacts(config.hidden_size, config.max_position_embeddings, 64)
        requested = Hyperparameters(n_epochs=self.epochs, batch_size=self.batch, max_length=LENGTH, packing=False)
        data = DataFacts(len(self.train), int(self.train.lengths.sum()))
        task = {
            "method": method,
            "base": str(self.base),
            "train": str(self.train.folder),
            "valid": None if self.valid is None else str(self.valid.folder),
            "folder": str(folder / f"{self.name}-{method}"),
            "recipe": resolve_recipe(requested, Method.SUPERVISED, facts, data, seed=1).to_document(),
            "row_tokens": self.batch * LENGTH,
            "full_rate": self.full_rate,
            "threads": threads,
        }
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.finetune.method_worker", json.dumps(task)]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        return found


def measure(threads: int) -> dict[str, Any]:
    """Return the figures by base model and method."""
    with tempfile.TemporaryDirectory(prefix="methods-") as name:
        folder = Path(name)
        found: dict[str, Any] = {}
        for case in (demo(folder / "demo"), larger(folder / "larger")):
            found[case.name] = {"parameters": _parameters(case.base)}
            for method in METHODS:
                Console(stderr=True).print(f"{case.name}: {method}")
                found[case.name][method] = case.run(method, folder, threads)
    return found


def demo(folder: Path) -> Case:
    """Return the demo's base model with a style of answering that it does not know."""
    base = shipped_assets().model_dir
    tokenization = _tokenization(base)
    tokens = [
        _tokens(folder / str(seed), examples_file(count, seed), tokenization) for count, seed in ((200, 0), (40, 2))
    ]
    return Case("demo", base, *tokens, epochs=2, batch=8, full_rate=3e-4)


def larger(folder: Path) -> Case:
    """Return a model of random weights, to measure memory only, with arithmetic sequences to learn."""
    LlamaForCausalLM(LARGER).save_pretrained(folder / "base")
    words = Tokenizer(WordLevel({"<pad>": 0}, "<pad>"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>").save_pretrained(folder / "base")
    draw, counted = np.random.default_rng(0), np.arange(LENGTH)
    with TokenFileWriter(folder / "tokens") as writer:
        for _ in range(6):
            ids = (draw.integers(256) + draw.integers(1, 4) * counted) % 256 + 3
            writer.add(Sample(ids.astype(np.uint32), counted >= 2))
        writer.finish({})
    return Case("larger", folder / "base", TokenFile(folder / "tokens"), None, epochs=1, batch=2, full_rate=1e-5)


def show(found: dict[str, Any]) -> None:
    """Print a table, and write the pictures for the docs."""
    table = Table("base", "method", "first, last, held-out loss", "loading MB", "training MB", *_PARTS, "rest")
    bars = []
    for base, methods in found.items():
        for method in METHODS:
            row, memory = methods[method], methods[method]["mb"]
            losses = (row["losses"][0], row["losses"][-1], row["held_out_loss"])
            cells = ", ".join("-" if loss is None else f"{loss:.3f}" for loss in losses)
            parts = [memory[part] for part in _PARTS]
            rest = memory["training"] - sum(parts)
            figures = (memory["loading"], memory["training"], *parts, rest)
            table.add_row(base, method, cells, *(f"{each:,.0f}" for each in figures))
            bars.append(Bar(f"{base}, {method}", [*parts, max(0.0, rest)]))
    Console().print(table)
    for base, methods in found.items():
        of_base = [bar for bar in bars if bar.name.startswith(base)]
        title = f"MB while training, {methods['parameters'] / 1e6:.0f} million parameters"
        (PICTURES / f"finetune-memory-{base}.svg").write_text(
            stacked(title, of_base, [*_PARTS, "activations and the rest"])
        )
    lines = {method: found["demo"][method]["losses"] for method in METHODS}
    (PICTURES / "finetune-losses.svg").write_text(curves("Training loss by step, demo's base model", lines))


def _parameters(base: Path) -> int:
    from safetensors import safe_open

    count = 0
    for path in base.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            count += sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118
    return count


def _tokenization(base: Path) -> TokenizationConfig:
    tokenizer = AutoTokenizer.from_pretrained(base)
    manifest = pb.Manifest(
        tokenizer_json=(base / "tokenizer.json").read_bytes(),
        chat_template=str(tokenizer.chat_template),
        special_tokens={name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        eos_token_ids=[tokenizer.eos_token_id],
    )
    return tokenization_config(manifest)


def _tokens(folder: Path, content: bytes, tokenization: TokenizationConfig) -> TokenFile:
    report, tokens = TokenCache(folder).tokens_of(
        CachedFile("tenant", "file"), BytesIO(content), "examples", tokenization, LENGTH
    )
    if tokens is None:
        raise SystemExit(f"the examples are invalid: {report.problems}")
    return tokens
