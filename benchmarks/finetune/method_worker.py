"""The process that fine-tunes one model with one method and reports its losses and peak memory.

    python -m benchmarks.finetune.method_worker '{"method": "qlora", "base": …, "train": …, …}'

prints the figures as JSON. All methods start after the same imports and a first matrix product; memory is the growth of
the process from there. `lora` and `qlora` train as jobs do, `full` in a minimal loop.
"""

import ctypes
import gc
import json
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.adapter import new_adapter
from loragate.finetune.training.base_model import load_base
from loragate.finetune.training.protocol.messages import Metrics
from loragate.finetune.training.train import train
from loragate.finetune.training.trainers.callback import RunCallback
from loragate.finetune.training.trainers.rows import Rows, concatenate_rows
from loragate.finetune.training.trainers.trainer_arguments import Run

CPU = torch.device("cpu")
QUANTIZATION = {"qlora": "nf4", "lora": "none", "full": "none"}
MOMENTS = 2  # of AdamW


def main() -> None:
    task = json.loads(sys.argv[1])
    torch.set_num_threads(task["threads"])
    torch.nn.Linear(64, 64)(torch.ones(8, 64)).sum().backward()
    before = _status("VmRSS")
    recipe = replace(Recipe.from_document(task["recipe"]), quantization=QUANTIZATION[task["method"]])
    losses: list[float] = []
    torch.manual_seed(recipe.seed)
    with peak() as loading:
        model: Any = load_base(Path(task["base"]), recipe.quantization, CPU)
        model = model if task["method"] == "full" else new_adapter(model, recipe)
    with peak() as training:
        run = train_full if task["method"] == "full" else train_adapter
        run(model, recipe, task, losses)
    memory = {
        "imports": before,
        "loading": loading[0] - before,
        "training": training[0] - before,
        **calculated_sizes(model),
    }
    rounded = [round(loss, 4) for loss in losses]
    print(json.dumps({"losses": rounded, "held_out_loss": held_out_loss(model, task), "mb": memory}))


def train_adapter(model: PeftModel, recipe: Recipe, task: dict[str, Any], losses: list[float]) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(task["base"])
    tokens, folder = TokenFile(Path(task["train"])), Path(task["folder"])
    run = Run(folder, tokens, None, task["row_tokens"], checkpoint_steps=10_000, log_steps=1)

    def record(metrics: Metrics) -> None:
        if metrics.train_loss is not None:
            losses.append(metrics.train_loss)

    train(model, tokenizer, recipe, run, RunCallback(record, threading.Event(), lambda: None))


def train_full(model: PreTrainedModel, recipe: Recipe, task: dict[str, Any], losses: list[float]) -> None:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    rows = Rows(TokenFile(Path(task["train"])))
    optimizer = torch.optim.AdamW(model.parameters(), lr=task["full_rate"], weight_decay=recipe.weight_decay)
    steps = recipe.epochs * math.ceil(len(rows) / recipe.batch_size)
    warm = recipe.warmup_ratio * steps
    cosine = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / max(1.0, warm)) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    for _ in range(recipe.epochs):
        order = torch.randperm(len(rows)).tolist()
        for start in range(0, len(order), recipe.batch_size):
            loss = model(**concatenate_rows([rows[place] for place in order[start : start + recipe.batch_size]])).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
            cosine.step()
            losses.append(loss.item())


def held_out_loss(model: torch.nn.Module, task: dict[str, Any]) -> float | None:
    """Return the mean loss per token of the validation examples."""
    if task["valid"] is None:
        return None
    rows = Rows(TokenFile(Path(task["valid"])))
    model.eval()
    with torch.no_grad():
        losses = [float(model(**concatenate_rows([rows[place]])).loss) for place in range(len(rows))]
    return sum(losses) / len(losses)


def calculated_sizes(model: torch.nn.Module) -> dict[str, float]:
    """Return the calculated megabytes of weights, gradients and optimizer state."""
    trained = sum(parameter.numel() * 4 for parameter in model.parameters() if parameter.requires_grad)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    weights += sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    weights += sum(_constants(parameter) for parameter in model.parameters())
    sizes = {"weights": weights, "gradients": trained, "optimizer": MOMENTS * trained}
    return {name: size / 1e6 for name, size in sizes.items()}


def _constants(parameter: Any) -> int:
    """Return the bytes of a weight's quantization constants."""
    state = getattr(parameter, "quant_state", None)
    parts = state.as_dict(packed=False).values() if state is not None else ()
    return sum(part.numel() * part.element_size() for part in parts if isinstance(part, torch.Tensor))


@contextmanager
def peak() -> Iterator[list[float]]:
    """Yield a list that receives, at the end of the block, the peak resident memory within it in MB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    found = [0.0]
    yield found
    found[0] = _status("VmHWM")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024 / 1e6


if __name__ == "__main__":
    main()
