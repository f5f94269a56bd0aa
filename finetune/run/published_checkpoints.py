"""A few checkpoints of a run are published while it goes on, so that they can be prompted."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.finetune.run.events import RunEvents
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.run.publishing import Publisher

log = logging.getLogger(__name__)

MOST = 4  # of one run, evenly spread


@dataclass(frozen=True)
class CheckpointSpacing:
    """Over a run of so many `steps`; of one that nobody knows the end of, each twice as far on as the one before,
    counted in the distance of its checkpoints, `every` steps."""

    steps: int | None
    every: int

    def takes(self, step: int, last: int) -> bool:
        """Of a run's end nothing becomes: that is the result. Nor of one too close to the `last` that was taken."""
        if self.steps is None:
            return step in {self.every << doubled for doubled in range(MOST)}
        return step < self.steps and step * MOST // self.steps != last * MOST // self.steps


class PublishedCheckpoints:
    """Of one run, published one after the other beside it. One that cannot be is told of, and the run goes on."""

    def __init__(
        self,
        held: WorkerLease,
        publisher: Publisher,
        journal: RunEvents,
        folder: Path,
        digest: Callable[[], str],
        spread: CheckpointSpacing,
    ) -> None:
        self._held = held
        self._spread = spread
        self._publisher = publisher
        self._journal = journal
        self._folder = folder
        self._digest = digest
        self._last = 0
        self._publishing: asyncio.Task[None] | None = None

    def add(self, checkpoint: Path, step: int) -> None:
        """It is on the disk."""
        if not self._spread.takes(step, self._last):
            return
        kept = self._folder / f"step-{step}"
        try:
            _link(checkpoint, kept)
        except OSError as error:  # the run may be three further by now
            log.warning("job %s: checkpoint %d is not published: %s", self._held.job.id, step, error)
            return
        self._last = step
        self._publishing = asyncio.create_task(self._publish_after(self._publishing, kept, step))

    async def settle(self) -> None:
        """All of them are published, or given up."""
        if self._publishing is not None:
            await self._publishing

    async def stop(self) -> None:
        """Whatever is under way is given up."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait([self._publishing])

    async def _publish_after(self, before: asyncio.Task[None] | None, folder: Path, step: int) -> None:
        if before is not None:
            await before
        try:
            await self._publish(folder, step)
        except LeaseLost:
            pass
        except (StoreError, OSError) as error:
            log.warning("job %s: checkpoint %d is not published: %s", self._held.job.id, step, error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _publish(self, folder: Path, step: int) -> None:
        figures = self._journal.at(step)
        model = await self._publisher.checkpoint(folder, step, self._digest(), figures)
        async with self._held.transaction() as work:
            await work.checkpoint(self._held.job.id, self._held.worker, step, figures, model)
            await work.tell(self._held.job.id, f"Checkpoint {step} answers as {model}.")


def _link(checkpoint: Path, kept: Path) -> None:
    """The run removes its own before long."""
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for name in (CONFIG_FILE, TENSORS_FILE):
        os.link(checkpoint / name, kept / name)
