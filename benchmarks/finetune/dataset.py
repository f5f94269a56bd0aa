"""Speed of training data: validation, tokenization and random reads, compared with `datasets` streaming the file.

    python -m benchmarks.finetune.dataset                       # 64 MB, three rounds, minutes
    python -m benchmarks.finetune.dataset --megabytes 1000      # the largest file that a tenant may upload

Our trainer writes token files of the chats once and reads them through a memory map, in another order in each epoch.
The peer streams the JSONL file with `datasets`, tokenizes each chat on arrival (`apply_chat_template`) and shuffles in
a buffer, as TRL does with a streamed data set. Both give the trainer the same batches of eight chats; a training step
of a model of 88M parameters on them, on the same machine, shows the rate that is needed. Memory is the growth of the
measured process.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.lib.report import write

BATCH = 8
LENGTH = 1024
SECONDS = 8.0  # duration of each read
VOCABULARY = 8192
_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_SPECIAL = ["<|pad|>", "<|im_start|>", "<|im_end|>"]

console = Console(stderr=True)
Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=64, help="size of the training file")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each step")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step is not None:
        print(json.dumps(STEPS[arguments.step](arguments.folder)))
        return
    with tempfile.TemporaryDirectory(prefix="dataset-") as name:
        folder = Path(name)
        console.print(f"writing {arguments.megabytes} MB of chats and a tokenizer")
        make_dataset(folder, arguments.megabytes << 20)
        steps: dict[str, list[Figures]] = {step: [] for step in STEPS}
        for turn in range(arguments.rounds):
            for step, runs in steps.items():
                console.print(f"round {turn + 1}: {step}")
                runs.append(run_in_process(step, folder))
    figures: dict[str, Any] = {"megabytes": arguments.megabytes}
    figures |= {step: medians(runs) for step, runs in steps.items()}
    rates = {name: figures[name].get("tokens_per_second", 0.0) for name in STEPS}
    against = ("training step", "datasets streaming")
    figures["ratios"] = {f"read to {name}": round(rates["read"] / rates[name], 1) for name in against}
    show(figures)
    write("dataset", figures)


def make_dataset(folder: Path, size: int) -> None:
    """Write `chats.jsonl`, and `tokenizer.json` trained on it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlucmfwyp", k=draw.randint(2, 10))) for _ in range(20_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    with (folder / "chats.jsonl").open("w") as file:
        while file.tell() < size:
            texts = [" ".join(draw.choices(words, weights, k=draw.randint(20, 180))) for _ in range(2)]
            roles = zip(("user", "assistant"), texts, strict=True)
            file.write(json.dumps({"messages": [{"role": role, "content": text} for role, text in roles]}) + "\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    with (folder / "chats.jsonl").open() as file:
        tokenizer.train_from_iterator((file.readline() for _ in range(2000)), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


def validate_file(folder: Path) -> Figures:
    """Validate every line; keep nothing."""
    from loragate.finetune.data.validation import validate

    size = (folder / "chats.jsonl").stat().st_size
    with (folder / "chats.jsonl").open("rb") as file, memory() as grown:
        began = time.perf_counter()
        report = validate(file)
        took = time.perf_counter() - began
    assert not report.problems
    return {"mb_per_second": size / took / 1e6, **grown}


def tokenize(folder: Path) -> Figures:
    """Write the token file, which serves all epochs."""
    import shutil

    shutil.rmtree(folder / "tokens", ignore_errors=True)
    size = (folder / "chats.jsonl").stat().st_size
    with memory() as grown:
        began = time.perf_counter()
        tokens = token_file(folder)
        took = time.perf_counter() - began
    facts = tokens.facts
    return {"mb_per_second": size / took / 1e6, "tokens_per_second": facts["tokens"] / took, **grown}


def read(folder: Path) -> Figures:
    """Read batches in random order through the memory map."""
    from torch.utils.data import DataLoader

    from loragate.finetune.training.trainers.rows import Rows, concatenate_rows

    loader = DataLoader(Rows(token_file(folder)), batch_size=BATCH, shuffle=True, collate_fn=concatenate_rows)
    return read_batches(lambda: iter(loader), lambda batch: batch["input_ids"].numel())


def datasets_streaming(folder: Path) -> Figures:
    """Read the same chats with `datasets` and transformers."""
    from datasets import load_dataset
    from torch.utils.data import DataLoader

    tokenizer = transformers_tokenizer(folder)
    stream = load_dataset("json", data_files=str(folder / "chats.jsonl"), split="train", streaming=True)

    def tokenize_row(row: dict[str, Any]) -> dict[str, Any]:
        return dict(
            tokenizer.apply_chat_template(
                row["messages"], return_dict=True, return_assistant_tokens_mask=True, truncation=True, max_length=LENGTH
            )
        )

    rows = stream.map(tokenize_row, remove_columns=["messages"]).shuffle(buffer_size=1000, seed=0)
    loader = DataLoader(rows, batch_size=BATCH, collate_fn=list)
    return read_batches(lambda: iter(loader), lambda batch: sum(len(row["input_ids"]) for row in batch))


def training_step(folder: Path) -> Figures:
    """Run forward and backward passes of a Llama of 88M parameters with frozen weights and rank 16 on all linears."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    from loragate.finetune.training.trainers.rows import Rows, concatenate_rows

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=768, intermediate_size=2048, num_hidden_layers=10, num_attention_heads=12,
        num_key_value_heads=4,
    )  # fmt: skip
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=16, target_modules="all-linear"))
    rows, tokens = Rows(token_file(folder)), 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < SECONDS:
        batch = concatenate_rows([rows[number] for number in range(BATCH)])
        model(**batch, use_cache=False).loss.backward()
        tokens += batch["input_ids"].numel()
    return {"tokens_per_second": tokens / took}


STEPS: dict[str, Callable[[Path], Figures]] = {
    "validate": validate_file,
    "tokenize": tokenize,
    "read": read,
    "datasets streaming": datasets_streaming,
    "training step": training_step,
}


def token_file(folder: Path) -> Any:
    """Return the token file; write it if it is missing."""
    from loragate.finetune.data.token_cache import CachedFile, TokenCache
    from loragate.finetune.data.tokenization_config import TokenizationConfig
    from loragate.prompts.chat_template import ChatTemplate
    from loragate.prompts.tokenizer import TextTokenizer

    tokenizer = TextTokenizer((folder / "tokenizer.json").read_bytes(), bos_token=None, add_bos=False)
    tokenization = TokenizationConfig(tokenizer, ChatTemplate(_TEMPLATE, {}), (2,), "benchmark")
    with (folder / "chats.jsonl").open("rb") as file:
        _, tokens = TokenCache(folder / "tokens").tokens_of(
            CachedFile("tenant", "file"), file, "chats", tokenization, LENGTH
        )
    assert tokens is not None
    return tokens


def transformers_tokenizer(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), pad_token=_SPECIAL[0])
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def read_batches(epoch: Callable[[], Iterator[Any]], count_tokens: Callable[[Any], int]) -> Figures:
    """Read epoch after epoch for SECONDS."""
    batches, tokens = epoch(), 0
    next(batches)  # fills the buffers
    with memory() as grown:
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < SECONDS:
            batch = next(batches, None)
            if batch is None:
                batches = epoch()
            else:
                tokens += count_tokens(batch)
    return {"tokens_per_second": tokens / took, **grown}


@contextmanager
def memory() -> Iterator[Figures]:
    """Yield a dict that receives, at the end of the block, the peak growth of private memory within it."""
    process, grown, over = psutil.Process(), Figures(), threading.Event()
    before = peak = process.memory_info().rss - process.memory_info().shared

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.02):
            info = process.memory_info()
            peak = max(peak, info.rss - info.shared)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield grown
    finally:
        over.set()
        watching.join()
        grown["grown_mb"] = (peak - before) / 1e6


def run_in_process(step: str, folder: Path) -> Figures:
    """Run a step in a new process, so that caches are cold and memory is its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.finetune.dataset"]
    command += ["--step", step, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def medians(runs: list[Figures]) -> Figures:
    return {key: round(statistics.median(run[key] for run in runs), 1) for key in runs[0]}


def show(figures: dict[str, Any]) -> None:
    table = Table("", "tokens/s", "MB/s", "memory growth, MB")
    for step in STEPS:
        row = figures[step]
        cells = (row.get(key) for key in ("tokens_per_second", "mb_per_second", "grown_mb"))
        table.add_row(step, *("" if cell is None else f"{cell:,.0f}" for cell in cells))
    console.print(table)
    console.print(figures["ratios"])


if __name__ == "__main__":
    main()
