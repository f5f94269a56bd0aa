"""The computation of a trainer, in threads of its own, and the memory that runs take there."""

import asyncio
import os
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from loragate.trainer.trainer import Trainer
from loragate.trainer.worker.preemption import Preemption

T = TypeVar("T")

_NICENESS = 10
"""Of the threads that compute steps, because serving takes precedence. Linux gives each thread a niceness of its own;
the event loop, for which clients wait, keeps that of the process."""


class Compute:
    """Computes steps, and beside them what concerns one run alone: one of each at a time. Runs use at most `max_bytes`
    of memory together."""

    def __init__(self, trainer: Trainer, max_bytes: int) -> None:
        self.trainer = trainer
        self.preemption = Preemption()
        trainer.between_layers = self.preemption.pause
        self._max_bytes = max_bytes
        self._steps = ThreadPoolExecutor(
            1, thread_name_prefix="trainer-step", initializer=os.nice, initargs=(_NICENESS,)
        )
        self._short = ThreadPoolExecutor(1, thread_name_prefix="trainer-run")

    async def run_step(self, work: Callable[[Trainer], T]) -> T:
        """Return the result of `work`, which computes on the base model."""

        def step() -> T:
            self.preemption.begin_step()
            return work(self.trainer)

        return await asyncio.get_running_loop().run_in_executor(self._steps, step)

    async def run(self, work: Callable[[Trainer], T]) -> T:
        """Return the result of `work`, which concerns a run that no computation has."""
        return await asyncio.get_running_loop().run_in_executor(self._short, work, self.trainer)

    def has_room(self, needed: int) -> bool:
        """Return whether a run of so many bytes fits beside the loaded ones."""
        return self.used + needed <= self._max_bytes

    @property
    def used(self) -> int:
        """The bytes of all loaded runs."""
        return sum(map(self.trainer.bytes_of, self.loaded))

    @property
    def loaded(self) -> Collection[str]:
        """The ids of the runs in memory."""
        return self.trainer.run_ids

    def close(self) -> None:
        """Wait for the computation that runs."""
        self._short.shutdown()
        self._steps.shutdown()
