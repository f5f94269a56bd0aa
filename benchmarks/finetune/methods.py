"""QLoRA beside LoRA beside full fine-tuning: the same samples, batches and steps, each way in a process of its own."""

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
from loragate.demo.build import build
from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.formats import Method
from loragate.finetune.data.token_cache import TokenCache
from loragate.finetune.data.token_file import TokenFile, TokenFileWriter
from loragate.finetune.data.tokenization_config import TokenizationConfig, tokenization_config
from loragate.finetune.jobs.hyperparameters import Hyperparameters
from loragate.finetune.jobs.recipe import BaseFacts, DataFacts, resolve_recipe
from loragate.v1 import engine_pb2 as pb

WAYS = ("qlora", "lora", "full")
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
LENGTH = 128  # tokens of a sample at the most
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
    """A base model with something to learn. `full_rate` is the learning rate where all weights are trained."""

    name: str
    base: Path
    train: TokenFile
    valid: TokenFile | None
    epochs: int
    batch: int
    full_rate: float

    def run(self, way: str, folder: Path, threads: int) -> dict[str, Any]:
        """See `method_worker`."""
        config = AutoConfig.from_pretrained(self.base)
        facts = BaseFacts(config.hidden_size, config.max_position_embeddings, 64)
        asked = Hyperparameters(n_epochs=self.epochs, batch_size=self.batch, max_length=LENGTH, packing=False)
        data = DataFacts(len(self.train), int(self.train.lengths.sum()))
        wanted = {
            "way": way,
            "base": str(self.base),
            "train": str(self.train.folder),
            "valid": None if self.valid is None else str(self.valid.folder),
            "folder": str(folder / f"{self.name}-{way}"),
            "recipe": resolve_recipe(asked, Method.SUPERVISED, facts, data, seed=1).to_document(),
            "row_tokens": self.batch * LENGTH,
            "full_rate": self.full_rate,
            "threads": threads,
        }
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.finetune.method_worker", json.dumps(wanted)]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found


def measured(data_dir: Path, threads: int) -> dict[str, Any]:
    """By base model and way."""
    with tempfile.TemporaryDirectory(prefix="ways-") as name:
        folder = Path(name)
        found: dict[str, Any] = {}
        for case in (demo(data_dir, folder / "demo"), larger(folder / "larger")):
            found[case.name] = {"parameters": _parameters(case.base)}
            for way in WAYS:
                Console(stderr=True).print(f"{case.name}: {way}")
                found[case.name][way] = case.run(way, folder, threads)
    return found


def demo(data_dir: Path, folder: Path) -> Case:
    """The demo's base model, and a way of answering that it does not have."""
    base = build(data_dir / "demo").model_dir
    tokenization = _tokenization(base)
    tokens = [
        _tokens(folder / str(seed), examples_file(count, seed), tokenization) for count, seed in ((200, 0), (40, 2))
    ]
    return Case("demo", base, *tokens, epochs=2, batch=8, full_rate=3e-4)


def larger(folder: Path) -> Case:
    """Random weights, of which the memory alone is of interest, and sequences that count by steps of their own."""
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
    """As a table, and as pictures for the docs."""
    table = Table("base", "way", "first, last, held-out loss", "loading MB", "training MB", *_PARTS, "rest")
    bars = []
    for base, ways in found.items():
        for way in WAYS:
            row, memory = ways[way], ways[way]["mb"]
            losses = (row["losses"][0], row["losses"][-1], row["held_out_loss"])
            told = ", ".join("-" if loss is None else f"{loss:.3f}" for loss in losses)
            parts = [memory[part] for part in _PARTS]
            rest = memory["training"] - sum(parts)
            figures = (memory["loading"], memory["training"], *parts, rest)
            table.add_row(base, way, told, *(f"{each:,.0f}" for each in figures))
            bars.append(Bar(f"{base}, {way}", [*parts, max(0.0, rest)]))
    Console().print(table)
    for base, ways in found.items():
        of_base = [bar for bar in bars if bar.name.startswith(base)]
        title = f"MB while training, {ways['parameters'] / 1e6:.0f} million parameters"
        (PICTURES / f"finetune-memory-{base}.svg").write_text(
            stacked(title, of_base, [*_PARTS, "activations and the rest"])
        )
    lines = {way: found["demo"][way]["losses"] for way in WAYS}
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
    report, tokens = TokenCache(folder).tokens_of(BytesIO(content), "examples", tokenization, LENGTH)
    if tokens is None:
        raise SystemExit(f"the examples are not good: {report.problems}")
    return tokens
