"""Rows of a file that may still grow, in the order in which they are appended."""

from collections.abc import Iterator
from itertools import count

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from loragate.finetune.data.streaming_token_file import (
    NotClosed,
    Partition,
    Pause,
    StreamingTokenFile,
    sleep_poll_interval,
)
from loragate.finetune.training.trainers.rows import Row, pair_row, ragged_row


class StreamingRows(IterableDataset[Row]):
    """Yields each row once per epoch.

    The first epoch follows the file to its end, waiting (`pause`) for more rows; later epochs, over the then closed
    file, are shuffled by the seed. The rows of a run therefore do not depend on how fast the file grew, and an
    interrupted run resumes at the row's `position` among all.

    Several loader workers share the rows: each takes every n-th and waits for its own.
    """

    def __init__(
        self,
        tokens: StreamingTokenFile,
        *,
        pairs: bool = False,
        epochs: int = 1,
        seed: int = 0,
        pause: Pause = sleep_poll_interval,
    ) -> None:
        self.position = 0
        self._tokens = tokens
        self._pairs = pairs
        self._epochs = epochs
        self._seed = seed
        self._pause = pause

    def __iter__(self) -> Iterator[Row]:
        worker = get_worker_info()
        partition = Partition() if worker is None else Partition(worker.id, worker.num_workers)
        order, epoch_of_order = np.empty(0, np.int64), 0
        for index in count():
            epoch, place = self._place(self.position + partition.place(index))
            if epoch >= self._epochs:
                return
            if epoch and epoch != epoch_of_order:
                order, epoch_of_order = self.order(epoch), epoch
            yield self.row(int(order[place]) if epoch else place)

    def row(self, place: int) -> Row:
        """Return a row. Raise NoSuchSequence."""
        samples = [self._tokens[place * self._unit + part] for part in range(self._unit)]
        return pair_row(samples) if self._pairs else ragged_row(samples)

    def order(self, epoch: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """Return the order of rows in an epoch, counted from 0. Raise NotClosed for a later epoch while the file is
        open."""
        if epoch and not self._tokens.closed:
            raise NotClosed(f"epoch {epoch} starts once the file is closed and fully read")
        if not epoch:
            return np.arange(self._rows)
        return np.random.default_rng((self._seed, epoch)).permutation(self._rows)

    @property
    def _rows(self) -> int:
        return len(self._tokens) // self._unit

    @property
    def _unit(self) -> int:
        return 2 if self._pairs else 1

    def _place(self, position: int) -> tuple[int, int]:
        """Return the epoch of the position-th row among all, and its place there; the epoch after the last if there is
        no such row."""
        if self._tokens.wait_for((position + 1) * self._unit - 1, self._pause):
            return 0, position
        return divmod(position, self._rows) if self._rows else (self._epochs, 0)
