"""Meters the tokens and the time of a run, and ends it when a limit of its tenant is used up."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.usage.training import TrainingUsage
from loragate.finetune.run.context import WorkerContext
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.run.trainer_process import TrainerProcess
from loragate.finetune.run.training_data import TrainingData

log = logging.getLogger(__name__)


class TrainingMeter:
    """The meter of one attempt. `exceeded` is a sentence about the limit that ended the run, or None."""

    def __init__(self, context: WorkerContext, lease: WorkerLease, data: TrainingData) -> None:
        self.exceeded: str | None = None
        self._context = context
        self._lease = lease
        self._data = data
        self._step = 0
        self._metered_at = time.monotonic()

    def on_step(self, step: int) -> None:
        """Note that a step is done."""
        self._step = max(step, self._step)

    @asynccontextmanager
    async def running(self, trainer: TrainerProcess) -> AsyncIterator[None]:
        """Meter the trainer while the block runs."""
        self._metered_at = time.monotonic()
        metering = asyncio.create_task(self._run(trainer), name="metering")
        try:
            yield
        finally:
            metering.cancel()
            await asyncio.wait([metering])
            await self._record()

    async def _run(self, trainer: TrainerProcess) -> None:
        while self.exceeded is None:
            await asyncio.sleep(self._context.config.metering_seconds)
            self.exceeded = await self._record()
        trainer.stop(within=self._context.config.patience.yield_seconds)

    async def _record(self) -> str | None:
        """Record what was used since the last time. What cannot be recorded now is recorded the next time."""
        now, job_id = time.monotonic(), self._lease.job.id
        used = TrainingUsage(self._data.trained_tokens(self._step), int((now - self._metered_at) * 1000))
        price = self._context.config.training_price(self._lease.tenant_id)
        try:
            async with self._lease.transaction() as work:
                base = self._context.base
                exceeded = await work.meter(job_id, self._lease.worker, used, base_model=base, price=price)
        except StoreError as error:
            log.warning("job %s: its usage could not be recorded: %s", job_id, error)
            return None
        self._metered_at = now
        return exceeded
