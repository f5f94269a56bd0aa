"""What the two methods share: where a run keeps itself, and what TRL is told of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import EarlyStoppingCallback

from loragate.finetune.data.streaming_token_file import StreamingTokenFile
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.training.trainers.rows import Rows


@dataclass(frozen=True)
class Run:
    """`row_tokens` bounds what goes through the model at once. With `valid`, the best checkpoint is what comes out."""

    folder: Path
    train: TokenFile | StreamingTokenFile
    valid: TokenFile | None
    row_tokens: int
    checkpoint_steps: int
    log_steps: int
    report_to: tuple[str, ...] = ()  # tensorboard, mlflow, wandb
    name: str = ""  # there

    @property
    def validated(self) -> bool:
        """There is data that is not trained on."""
        return self.valid is not None and len(self.valid) > 0


def together(longest: int, recipe: Recipe, row_tokens: int) -> int:
    """Rows that go through the model at once: a divisor of the batch, so that each step has as many."""
    most = max(1, min(recipe.batch_size, row_tokens // max(1, longest)))
    return next(each for each in range(most, 0, -1) if recipe.batch_size % each == 0)


def lazy_dataset(rows: Rows) -> Dataset:
    """TRL takes no other kind of data set: this one holds the rows' numbers, and reads a row when it is asked for."""

    def read(batch: dict[str, list[int]]) -> dict[str, list[Tensor]]:
        found = [rows[number] for number in batch["number"]]
        return {name: [row[name] for row in found] for name in found[0]}

    return Dataset.from_dict({"number": range(len(rows))}).with_transform(read)


def early_stopping(recipe: Recipe, run: Run) -> list[EarlyStoppingCallback]:
    """For those who asked for it and have something to tell it by."""
    if recipe.early_stopping_patience is None or not run.validated:
        return []
    return [EarlyStoppingCallback(recipe.early_stopping_patience)]


def arguments(recipe: Recipe, run: Run, rows_together: int) -> dict[str, Any]:
    """Of transformers' TrainingArguments."""
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": False}
    return {
        "output_dir": str(run.folder),
        **length(recipe),
        "per_device_train_batch_size": rows_together,
        "per_device_eval_batch_size": rows_together,
        "gradient_accumulation_steps": recipe.batch_size // rows_together,
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "learning_rate": recipe.learning_rate,
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": recipe.max_grad_norm,
        "optim": "adamw_torch",
        "bf16": torch.cuda.is_available(),
        "use_cpu": not torch.cuda.is_available(),
        "seed": recipe.seed,
        "data_seed": recipe.seed,
        "ignore_data_skip": recipe.streaming,  # its rows begin where the run has come to
        "logging_steps": run.log_steps,
        "logging_nan_inf_filter": False,
        "save_strategy": "steps",
        "save_steps": run.checkpoint_steps,
        "eval_strategy": "steps" if run.validated else "no",
        "eval_steps": run.checkpoint_steps,
        "prediction_loss_only": True,
        "remove_unused_columns": False,
        "max_length": None,
        "disable_tqdm": True,
        "report_to": [],  # see reporting.py
        "run_name": run.name or None,
        **(best if run.validated else {}),
    }


ENDLESS = 1 << 40  # steps: Trainer must be told of some
_STEPS_UNSEEN = 200  # that the warm-up's share is of


def length(recipe: Recipe) -> dict[str, Any]:
    """Of transformers' TrainingArguments: steps, and the schedule over them."""
    if recipe.streaming and recipe.n_steps is None:
        return {
            "max_steps": ENDLESS,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": round(recipe.warmup_ratio * _STEPS_UNSEEN),
        }
    return {
        "num_train_epochs": recipe.epochs,
        "max_steps": -1 if recipe.n_steps is None else recipe.n_steps,
        "lr_scheduler_type": recipe.lr_scheduler,
        "warmup_steps": recipe.warmup_ratio,
    }


def known_steps(max_steps: int) -> int | None:
    """Of what transformers was told."""
    return None if max_steps == ENDLESS else max_steps
