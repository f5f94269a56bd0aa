"""Controls a running trainer: stops it on orders, throttles it for the engine, and feeds it a streaming file."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.jobs.job import JobStatus
from loragate.finetune.run.context import WorkerContext
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.run.streaming_file import StreamingTrainingFile
from loragate.finetune.run.trainer_process import TrainerProcess


class RunControl:
    """Controls the trainer of one attempt.

    It stops the trainer when the tenant orders it or the lease is lost, reports the engine's load to it, and ends the
    run so that other jobs have their turn: if it waits for lines while others are queued, or has trained for its
    quantum while other tenants' are. `on_step` and `on_waiting` pass on the trainer's messages.
    """

    def __init__(self, context: WorkerContext, lease: WorkerLease) -> None:
        self.yielded: str | None = None  # why it was stopped for the sake of other jobs
        self._context = context
        self._lease = lease
        self._error: Exception | None = None  # of the streaming file
        self._waiting = asyncio.Event()  # for lines

    def on_step(self) -> None:
        """Note that the trainer has completed a step, so there were lines."""
        self._waiting.clear()

    def on_waiting(self) -> None:
        """Note that the trainer waits for lines."""
        self._waiting.set()

    @asynccontextmanager
    async def running(self, trainer: TrainerProcess, streaming: StreamingTrainingFile | None) -> AsyncIterator[None]:
        """Control the trainer while the block runs. Afterwards raise the error of the streaming file, if there was
        one."""
        tasks = [
            asyncio.create_task(self._stop_when_interrupted(trainer), name="interruption"),
            asyncio.create_task(self._report_engine_load(trainer), name="engine load"),
            asyncio.create_task(self.stop_when_others_wait(trainer), name="other jobs"),
            asyncio.create_task(self.stop_after_quantum(trainer), name="quantum"),
        ]
        if streaming is not None:
            tasks.append(asyncio.create_task(self._stream(trainer, streaming), name="streaming file"))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._error is not None:
            raise self._error

    async def stop_when_others_wait(self, trainer: TrainerProcess) -> None:
        """Stop a trainer that waits for data, so that queued jobs that have data can run."""
        while self.yielded is None:
            await self._waiting.wait()
            await asyncio.sleep(self._context.config.data_wait_seconds)
            if self._waiting.is_set() and await self._jobs_wait():
                self._yield(trainer, "Requeued while waiting for lines: jobs that have data go first.")

    async def stop_after_quantum(self, trainer: TrainerProcess) -> None:
        """Stop a trainer that has trained for long while jobs of other tenants wait."""
        config = self._context.config
        await asyncio.sleep(config.quantum_seconds)
        while self.yielded is None:
            await asyncio.sleep(config.poll_seconds)
            if await self._other_tenants_wait():
                self._yield(trainer, "Requeued, to continue from its checkpoint: jobs of other tenants go first.")

    def _yield(self, trainer: TrainerProcess, reason: str) -> None:
        self.yielded = self.yielded or reason
        trainer.stop(within=self._context.config.patience.yield_seconds)

    async def _stop_when_interrupted(self, trainer: TrainerProcess) -> None:
        await self._lease.interrupted.wait()
        trainer.stop()

    async def _report_engine_load(self, trainer: TrainerProcess) -> None:
        async for load in self._context.engine_loads():
            trainer.set_engine_load(load)
            self._context.metrics.record_engine_load(load)

    async def _stream(self, trainer: TrainerProcess, streaming: StreamingTrainingFile) -> None:
        try:
            await streaming.run()
        except Exception as error:  # of any kind: without this task the trainer would wait forever
            self._error = error
            trainer.stop()

    async def _jobs_wait(self) -> bool:
        with suppress(StoreError):
            async with self._context.store.admin() as admin:
                return JobStatus.QUEUED in await admin.job_queue.waiting()
        return False

    async def _other_tenants_wait(self) -> bool:
        with suppress(StoreError):
            async with self._context.store.admin() as admin:
                most = self._context.config.max_jobs_per_tenant
                return await admin.job_queue.others_wait(self._lease.tenant_id, most)
        return False
