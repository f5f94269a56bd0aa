"""transformers' Trainer with checkpoints as `checkpoints` writes them: without pickle, and in the background.

The methods with a leading underscore override Trainer's to_host steps of saving and resuming.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import Trainer
from transformers.trainer_callback import ExportableState

from loragate.finetune.training.checkpoints.checkpoint import (
    AdapterState,
    Checkpoint,
    CheckpointWriter,
    optimizer_tensors,
    random_states,
    read_run,
    read_tensors,
    restore_optimizer,
    restore_random_states,
    to_host,
)

MAX_CHECKPOINTS = 2  # in addition to the best


class ResumableMixin(Trainer):
    """Must precede the Trainer among a class's bases. Supports one process and one device."""

    writer: CheckpointWriter
    on_written: Callable[[Path], None]

    def start_checkpoint_writer(self, on_written: Callable[[Path], None]) -> None:
        """Call before training. `on_written` is called from another thread with each checkpoint that is complete."""
        self.writer = CheckpointWriter(MAX_CHECKPOINTS)
        self.on_written = on_written

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        assert self.optimizer is not None
        assert self.lr_scheduler is not None
        self.store_flos()
        best = self._best_folder()
        if best is not None:
            self.state.best_model_checkpoint = str(best)
        self._collect_callbacks_state()
        assert isinstance(self.model, PeftModel)
        moments, groups = optimizer_tensors(self.optimizer)
        generators, others = random_states()
        checkpoint = Checkpoint(
            adapter=AdapterState.capture(self.model),
            tensors=to_host({**moments, **generators}),
            run={"groups": groups, "schedule": self.lr_scheduler.state_dict(), "random": others},
            trainer_state=json.dumps(asdict(self.state)),
        )
        self.writer.write(checkpoint, self._folder(self.state.global_step), best, self.on_written)

    def _folder(self, step: int) -> Path:
        return Path(str(self.args.output_dir)) / f"checkpoint-{step}"

    def _best_folder(self) -> Path | None:
        return self._folder(self.state.best_global_step) if self.state.best_global_step else None

    def _collect_callbacks_state(self) -> None:
        """Collect the callbacks' state, for example the patience of early stopping."""
        callbacks = (*self.callback_handler.callbacks, self.control)
        states: Any = {type(each).__name__: each.state() for each in callbacks if isinstance(each, ExportableState)}
        self.state.stateful_callbacks = states

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            assert self.optimizer is not None
            assert self.lr_scheduler is not None
            run = read_run(Path(checkpoint))
            restore_optimizer(self.optimizer, read_tensors(Path(checkpoint)), run["groups"])
            self.lr_scheduler.load_state_dict(run["schedule"])

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            restore_random_states(read_tensors(Path(checkpoint)), read_run(Path(checkpoint))["random"])

    def _load_best_model(self) -> None:
        self.writer.wait()
        super()._load_best_model()
