"""What all methods share: a run's inputs, and the arguments of trainers."""

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

UNBOUNDED_STEPS = 1 << 40  # steps: Trainer requires a number
_WARMUP_BASE_STEPS = 200  # of which the warm-up takes its ratio


@dataclass(frozen=True)
class Run:
    """The inputs of a run. `row_tokens` bounds the tokens of a forward pass. With `valid`, the best checkpoint is the
    result."""

    folder: Path
    train: TokenFile | StreamingTokenFile
    valid: TokenFile | None
    row_tokens: int
    checkpoint_steps: int
    log_steps: int
    report_to: tuple[str, ...] = ()  # tensorboard, mlflow, wandb
    name: str = ""  # in those systems

    @property
    def validated(self) -> bool:
        """Whether there is validation data."""
        return self.valid is not None and len(self.valid) > 0


def micro_batch_rows(longest: int, recipe: Recipe, row_tokens: int) -> int:
    """Return the rows of a micro-batch: a divisor of the batch size, so that every step has as many rows."""
    max_rows = max(1, min(recipe.batch_size, row_tokens // max(1, longest)))
    return next(each for each in range(max_rows, 0, -1) if recipe.batch_size % each == 0)


def lazy_dataset(rows: Rows) -> Dataset:
    """Return the rows as a data set that holds only their numbers and reads each row when it is requested: TRL accepts
    nothing else."""

    def read(batch: dict[str, list[int]]) -> dict[str, list[Tensor]]:
        found = [rows[number] for number in batch["number"]]
        return {name: [row[name] for row in found] for name in found[0]}

    return Dataset.from_dict({"number": range(len(rows))}).with_transform(read)


def early_stopping(recipe: Recipe, run: Run) -> list[EarlyStoppingCallback]:
    """Return the early-stopping callback, if it was requested and there is validation data."""
    if recipe.early_stopping_patience is None or not run.validated:
        return []
    return [EarlyStoppingCallback(recipe.early_stopping_patience)]


def training_arguments(
    recipe: Recipe, run: Run, rows_together: int, *, validated: bool | None = None
) -> dict[str, Any]:
    """Return transformers' TrainingArguments. `validated`: there is data to evaluate on; None: where the run has a
    file of it."""
    validated = run.validated if validated is None else validated
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": False}
    return {
        "output_dir": str(run.folder),
        **_run_length(recipe),
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
        "ignore_data_skip": recipe.streaming,  # the rows already start at the run's position
        "logging_steps": run.log_steps,
        "logging_nan_inf_filter": False,
        "save_strategy": "steps",
        "save_steps": run.checkpoint_steps,
        "eval_strategy": "steps" if validated else "no",
        "eval_steps": run.checkpoint_steps,
        "prediction_loss_only": True,
        "remove_unused_columns": False,
        "max_length": None,
        "disable_tqdm": True,
        "report_to": [],  # see reporting.py
        "run_name": run.name or None,
        **(best if validated else {}),
    }


def _run_length(recipe: Recipe) -> dict[str, Any]:
    """Return the TrainingArguments for the number of steps and their schedule."""
    if recipe.streaming and recipe.n_steps is None:
        return {
            "max_steps": UNBOUNDED_STEPS,
            "lr_scheduler_type": "constant_with_warmup",
            "warmup_steps": round(recipe.warmup_ratio * _WARMUP_BASE_STEPS),
        }
    return {
        "num_train_epochs": recipe.epochs,
        "max_steps": -1 if recipe.n_steps is None else recipe.n_steps,
        "lr_scheduler_type": recipe.lr_scheduler,
        "warmup_steps": recipe.warmup_ratio,
    }


def known_steps(max_steps: int) -> int | None:
    """Return transformers' number of steps, None if it is unbounded."""
    return None if max_steps == UNBOUNDED_STEPS else max_steps
