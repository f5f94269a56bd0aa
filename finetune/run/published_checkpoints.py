"""Publishes a few checkpoints of a run while it continues, so that they can be queried."""

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

MAX_PUBLISHED = 4  # per run, evenly spaced


@dataclass(frozen=True)
class CheckpointSpacing:
    """Chooses the checkpoints to publish.

    They are spaced evenly over a known number of `steps`. Of a run without a known end, each is twice as far as the one
    before, starting with the first checkpoint, at `interval` steps.
    """

    steps: int | None
    interval: int

    def includes(self, step: int, last: int) -> bool:
        """Return whether to publish this checkpoint.

        Never the final one, which is the result, nor one too close to `last`, the step that was published last.
        """
        if self.steps is None:
            return step in {self.interval << doubled for doubled in range(MAX_PUBLISHED)}
        return step < self.steps and step * MAX_PUBLISHED // self.steps != last * MAX_PUBLISHED // self.steps


class PublishedCheckpoints:
    """Publishes checkpoints of one run, one after the other, in the background. A failed one is logged."""

    def __init__(
        self,
        lease: WorkerLease,
        publisher: Publisher,
        events: RunEvents,
        folder: Path,
        digest: Callable[[], str],
        spacing: CheckpointSpacing,
    ) -> None:
        self._lease = lease
        self._spacing = spacing
        self._publisher = publisher
        self._events = events
        self._folder = folder
        self._digest = digest
        self._last = 0
        self._publishing: asyncio.Task[None] | None = None

    def add(self, checkpoint: Path, step: int, *, last: bool = False) -> None:
        """Publish a checkpoint that is complete on disk, if the spacing includes it or it is the `last` of a run that
        will have no result."""
        if not last and not self._spacing.includes(step, self._last):
            return
        links = self._folder / f"step-{step}"
        try:
            _link(checkpoint, links)
        except OSError as error:  # the run may have removed it by now
            log.warning("job %s: checkpoint %d is not published: %s", self._lease.job.id, step, error)
            return
        self._last = step
        self._publishing = asyncio.create_task(self._publish_after(self._publishing, links, step))

    async def finish(self) -> None:
        """Wait until every checkpoint is published or has failed."""
        if self._publishing is not None:
            await self._publishing

    async def cancel(self) -> None:
        """Cancel what is being published."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait([self._publishing])

    async def _publish_after(self, previous: asyncio.Task[None] | None, folder: Path, step: int) -> None:
        if previous is not None:
            await previous
        try:
            await self._publish(folder, step)
        except LeaseLost:
            pass
        except (StoreError, OSError) as error:
            log.warning("job %s: checkpoint %d is not published: %s", self._lease.job.id, step, error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _publish(self, folder: Path, step: int) -> None:
        metrics = self._events.metrics_at(step)
        model = await self._publisher.checkpoint(folder, step, self._digest(), metrics)
        async with self._lease.transaction() as work:
            await work.checkpoint(self._lease.job.id, self._lease.worker, step, metrics, model)
            await work.log_event(self._lease.job.id, f"Checkpoint {step} is available as {model}.")


def _link(checkpoint: Path, links: Path) -> None:
    """Link the checkpoint's adapter, which the run will remove."""
    shutil.rmtree(links, ignore_errors=True)
    links.mkdir(parents=True)
    for name in (CONFIG_FILE, TENSORS_FILE):
        os.link(checkpoint / name, links / name)
