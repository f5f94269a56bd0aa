"""transformers' Trainer on rows that may still be on their way.

Trainer wants to know how many steps there will be; of these nobody does. The methods here take the place of Trainer's
own steps of loading: its loop ends where the rows do, and where it is told to stop while it waits for some.
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
    """TRL looks at a row when it is made, and there may be none yet; nothing is trained on this one."""
    return Dataset.from_dict({name: [tensor.tolist()] for name, tensor in row.items()})


class StreamingMixin(Trainer):
    """To stand in front of a Trainer among a class's bases. Like any other until it is told to `follow` rows."""

    _rows: StreamingRows | None = None
    _taken = 0  # batches, since the run began or went on

    def follow(self, rows: StreamingRows, batch_size: int) -> None:
        """Before training: a step takes so many of these rows."""
        self._rows = rows
        self._batch_size = batch_size

    def get_train_dataloader(self) -> DataLoader[Any]:
        if self._rows is None:
            return super().get_train_dataloader()
        own = torch.Generator()  # else it draws from the one that dropout draws from, when a run goes on
        return DataLoader(self._rows, batch_size=self._train_batch_size, collate_fn=self.data_collator, generator=own)

    def _init_training_state(self, *given: Any) -> tuple[int, int]:
        begins: tuple[int, int] = super()._init_training_state(*given)
        if self._rows is not None:
            self._rows.position = self.state.global_step * self._batch_size
        return begins

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """Of one step. Those that came for a step which is not made are read again by whoever goes on."""
        if self._rows is None:
            return super().get_batch_samples(epoch_iterator, num_batches, device)
        try:
            batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        except Interrupted:
            self._end(evaluate=False)
            return [], None
        self._taken += len(batches)
        if not batches:
            self._end(evaluate=self.eval_dataset is not None)
        elif len(batches) < num_batches:
            # The last step is a shorter one. Trainer makes a step at each multiple of this number of batches.
            self.args.gradient_accumulation_steps = self._taken
        return batches, items

    def _end(self, *, evaluate: bool) -> None:
        self.control.should_training_stop = True
        self.control.should_save = self.state.global_step > 0
        self.control.should_evaluate = evaluate and self.state.global_step > 0
