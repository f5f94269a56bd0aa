"""transformers' Trainer, keeping its checkpoints as `checkpoint` does: no pickle, and written beside the training.

The methods with an underscore in front are Trainer's own steps of saving and resuming; ours take their place.
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
    own,
    random_states,
    read_run,
    read_tensors,
    restore_optimizer,
    restore_random_states,
)

KEPT = 2  # checkpoints, beside the best


class ResumableMixin(Trainer):
    """To stand in front of a Trainer among a class's bases. Of one process and one device."""

    writer: CheckpointWriter
    written: Callable[[Path], None]

    def start_checkpoint_writer(self, written: Callable[[Path], None]) -> None:
        """Before training: `written` hears of each that is on the disk, from another thread."""
        self.writer = CheckpointWriter(KEPT)
        self.written = written

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
            tensors=own({**moments, **generators}),
            run={"groups": groups, "schedule": self.lr_scheduler.state_dict(), "random": others},
            trainer_state=json.dumps(asdict(self.state)),
        )
        self.writer.write(checkpoint, self._folder(self.state.global_step), best, self.written)

    def _folder(self, step: int) -> Path:
        return Path(str(self.args.output_dir)) / f"checkpoint-{step}"

    def _best_folder(self) -> Path | None:
        return self._folder(self.state.best_global_step) if self.state.best_global_step else None

    def _collect_callbacks_state(self) -> None:
        """The early stopping's patience, for one."""
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
