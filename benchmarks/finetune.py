"""What fine-tuning costs and what it teaches.

*Ways*: QLoRA, LoRA and full fine-tuning on one model from a config: losses, seconds, and memory at its peak.
*Claim*: a tenant of the demo teaches its model a way of answering with 200 examples, through the API alone: how many of
the held-out questions are answered that way before and after, and how long it took.

    python benchmarks/finetune.py               # both: eight minutes on two idle cores, once the demo is trained
    python benchmarks/finetune.py --only claim
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from demo_server import DATA_DIR, demo_server
from report import write
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from taught_style import held_out, look, training_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.formats import Method
from loragate.finetune.data.token_file import TokenFile, TokenFileWriter
from loragate.finetune.hyperparameters import Hyperparameters
from loragate.finetune.recipe import BaseFacts, DataFacts, Recipe, recipe_of
from loragate.finetune.trainer_process import training
from loragate.finetune.training.assignment import Assignment
from loragate.finetune.training.news import Failed, Stepped

CONFIG = LlamaConfig(
    hidden_size=512,
    intermediate_size=1408,
    num_hidden_layers=6,
    num_attention_heads=8,
    num_key_value_heads=4,
    vocab_size=4096,
    max_position_embeddings=512,
)
EPOCHS, BATCH, TOKENS, HELD_OUT = 2, 8, 64, 200
FULL_RATE = 5e-4
PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
LIBRARIES = "import datasets, peft, transformers, trl; from trl.trainer.sft_trainer import SFTTrainer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("ways", "claim"))
    parser.add_argument("--examples", type=int, default=64, help="of the ways; fewer for a quick look")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="where the demo is, or will be trained")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {}
    if arguments.only != "claim":
        with tempfile.TemporaryDirectory() as folder:
            figures["ways"] = ways(Path(folder), arguments.examples)
        show_ways(figures["ways"])
    if arguments.only != "ways":
        figures["claim"] = claim(arguments.data_dir)
        Console().print(figures["claim"])
    print(f"written to {write('finetune', figures).relative_to(Path.cwd())}")


def ways(folder: Path, examples: int) -> dict[str, Any]:
    """Each with the same samples, batches and number of steps."""
    base, tokens = build(folder, examples)
    threads = len(os.sched_getaffinity(0))
    facts = BaseFacts(CONFIG.hidden_size, 512, 64)
    asked = Hyperparameters(n_epochs=EPOCHS, batch_size=BATCH, max_length=TOKENS, packing=False)
    recipe = recipe_of(asked, Method.SUPERVISED, facts, DataFacts(examples, examples * TOKENS), seed=0)
    found = {"libraries": {"peak_mb": libraries()}}
    for name, quantization in (("qlora", "nf4"), ("lora", "none")):
        chosen = replace(recipe, quantization=quantization)
        found[name] = asyncio.run(adapter(base, tokens, folder / name, chosen, threads))
    found["full"] = full(base, tokens, threads)
    return found


async def adapter(base: Path, tokens: TokenFile, folder: Path, recipe: Recipe, threads: int) -> dict[str, Any]:
    """By the process that jobs are trained in."""
    assignment = Assignment(recipe, base, tokens.folder, None, folder, None, BATCH * TOKENS, 10_000, threads)
    losses: list[float] = []
    began = time.monotonic()
    async with training(assignment) as trainer:
        with watched(trainer.pid) as peak:
            async for news in trainer.news():
                if isinstance(news, Stepped) and news.metrics.train_loss is not None:
                    began = time.monotonic() if not losses else began
                    losses.append(news.metrics.train_loss)
                if isinstance(news, Failed):
                    raise SystemExit(news.message)
    return outcome(losses, time.monotonic() - began, peak[0])


def full(base: Path, tokens: TokenFile, threads: int) -> dict[str, Any]:
    script = Path(__file__).with_name("full_finetuning.py")
    numbers = map(str, (EPOCHS, BATCH, FULL_RATE, threads))
    losses: list[float] = []
    began = 0.0
    command = [sys.executable, str(script), str(base), str(tokens.folder), *numbers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, watched(process.pid) as peak:
        assert process.stdout is not None
        for line in process.stdout:
            began = began or time.monotonic()
            losses.append(float(line))
    return outcome(losses, time.monotonic() - began, peak[0])


def outcome(losses: list[float], seconds: float, peak_mb: float) -> dict[str, Any]:
    """Means over a quarter of the steps. Seconds are from the first step's end to the last one's."""
    quarter = max(1, len(losses) // 4)
    first, last = (float(np.mean(part)) for part in (losses[:quarter], losses[-quarter:]))
    return {"first_loss": first, "last_loss": last, "steps": len(losses), "seconds": seconds, "peak_mb": peak_mb}


@contextmanager
def watched(pid: int) -> Iterator[list[float]]:
    """The most memory that the process has had, in MB: its last word before it ends."""
    peak, ended = [0.0], threading.Event()

    def look_again() -> None:
        while not ended.wait(0.05):
            try:
                found = PEAK.search(Path(f"/proc/{pid}/status").read_text())
            except OSError:
                return
            peak[0] = max(peak[0], int(found[1]) / 1024) if found else peak[0]

    looking = threading.Thread(target=look_again)
    looking.start()
    try:
        yield peak
    finally:
        ended.set()
        looking.join()


def libraries() -> float:
    """MB of a process that has only imported what trains."""
    told = f"{LIBRARIES}; print(open('/proc/self/status').read())"
    shown = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout
    found = PEAK.search(shown)
    return int(found[1]) / 1024 if found else 0.0


def build(folder: Path, examples: int) -> tuple[Path, TokenFile]:
    """A random model, and sequences that count by steps of their own: something can be learned of them."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    base = folder / "base"
    LlamaForCausalLM(CONFIG).save_pretrained(base)
    words = Tokenizer(WordLevel({"<pad>": 0}, "<pad>"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>").save_pretrained(base)
    draw = np.random.default_rng(0)
    with TokenFileWriter(folder / "tokens") as writer:
        for _ in range(examples):
            ids = (draw.integers(256) + draw.integers(1, 4) * np.arange(TOKENS)) % 256 + 3
            writer.add(Sample(ids.astype(np.uint32), np.arange(TOKENS) >= 2))
        writer.finish({})
    return base, TokenFile(folder / "tokens")


def claim(data_dir: Path) -> dict[str, Any]:
    """Through the API alone."""
    questions = held_out(HELD_OUT)
    with demo_server(data_dir) as server, Progress(console=Console(stderr=True)) as progress:
        client = server.client()
        base = client.models.list().data[0].id
        task = progress.add_task("asking", total=2 * len(questions))
        before = look(client, base, questions, lambda: progress.advance(task))
        began = time.monotonic()
        file = client.files.create(file=("ledger.jsonl", training_file()), purpose="fine-tune")
        job = client.fine_tuning.jobs.create(model=base, training_file=file.id, suffix="ledger", seed=1)
        while job.finished_at is None:
            time.sleep(0.5)
            job = client.fine_tuning.jobs.retrieve(job.id)
            progress.update(task, description=job.status)
        seconds = time.monotonic() - began
        if job.fine_tuned_model is None:
            raise SystemExit(f"the job is {job.status}: {job.error}")
        progress.update(task, description="asking")
        after = look(client, job.fine_tuned_model, questions, lambda: progress.advance(task))
    chosen = json.loads(job.model_dump_json())["method"]["supervised"]["hyperparameters"]
    return {"seconds": seconds, "before": asdict(before), "after": asdict(after), "hyperparameters": chosen}


def show_ways(found: dict[str, Any]) -> None:
    table = Table("way", "first loss", "last loss", "seconds", "peak MB", "above the libraries")
    libraries = found["libraries"]["peak_mb"]
    for name in ("qlora", "lora", "full"):
        row = found[name]
        figures = (row["first_loss"], row["last_loss"], row["seconds"], row["peak_mb"], row["peak_mb"] - libraries)
        table.add_row(name, *(f"{figure:,.2f}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    main()
