"""transformers' Trainer on rows that may still be appended.

Trainer needs to know the number of steps, which is unknown here. These methods override its steps of loading: the loop
ends with the rows, or when the run is stopped while it waits for some.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import Trainer

from loragate.finetune.data.encoding import Sample
from loragate.finetune.training.trainers.callback import Interrupted
from loragate.finetune.training.trainers.rows import Row
from loragate.finetune.training.trainers.streaming_rows import StreamingRows

PLACEHOLDER = Sample(np.zeros(2, np.uint32), np.array([False, True]))


def placeholder_dataset(row: Row) -> Dataset:
    """Return a dataset of one row, because TRL inspects a row at construction and there may be none yet. It is never
    trained on."""
    return Dataset.from_dict({name: [tensor.tolist()] for name, tensor in row.items()})


class StreamingMixin(Trainer):
    """Must precede the Trainer among a class's bases. It changes nothing until `stream_rows` is called."""

    _rows: StreamingRows | None = None
    _batches_taken = 0  # batches since the run started or resumed

    def stream_rows(self, rows: StreamingRows, batch_size: int) -> None:
        """Train on these rows, `batch_size` per step. Call before training."""
        self._rows = rows
        self._batch_size = batch_size

    def get_train_dataloader(self) -> DataLoader[Any]:
        if self._rows is None:
            return super().get_train_dataloader()
        own = torch.Generator()  # otherwise a resumed run would advance dropout's generator
        return DataLoader(self._rows, batch_size=self._train_batch_size, collate_fn=self.data_collator, generator=own)

    def _init_training_state(self, *given: Any) -> tuple[int, int]:
        begins: tuple[int, int] = super()._init_training_state(*given)
        if self._rows is not None:
            self._rows.position = self.state.global_step * self._batch_size
        return begins

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """Return the batches of one step. Batches of a step that is interrupted are read again when the run resumes."""
        if self._rows is None:
            return super().get_batch_samples(epoch_iterator, num_batches, device)
        try:
            batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        except Interrupted:
            self._end(evaluate=False)
            return [], None
        self._batches_taken += len(batches)
        if not batches:
            self._end(evaluate=self.eval_dataset is not None)
        elif len(batches) < num_batches:
            # The last step is shorter. Trainer makes a step at every multiple of this number of batches.
            self.args.gradient_accumulation_steps = self._batches_taken
        return batches, items

    def _end(self, *, evaluate: bool) -> None:
        self.control.should_training_stop = True
        self.control.should_save = self.state.global_step > 0
        self.control.should_evaluate = evaluate and self.state.global_step > 0
