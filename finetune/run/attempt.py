"""One worker's attempt at a job: from its training file to a published adapter, or to where it was stopped."""

import asyncio
import logging
import shutil
from contextlib import suppress
from pathlib import Path

from loragate.adapter_store.errors import Failure, StoreError, Unavailable
from loragate.adapter_store.jobs.job import Order
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.usage.training import LIMIT_EXCEEDED
from loragate.finetune.errors import JobRejected, storage_failure
from loragate.finetune.run.base_adapter import fetch_base_adapter
from loragate.finetune.run.checkpoint_backup import RUN, CheckpointBackup, restore_run
from loragate.finetune.run.context import WorkerContext
from loragate.finetune.run.control import RunControl
from loragate.finetune.run.events import RunEvents, evaluation_message
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.run.metering import TrainingMeter
from loragate.finetune.run.preparation import Prepared
from loragate.finetune.run.published_checkpoints import CheckpointSpacing, PublishedCheckpoints
from loragate.finetune.run.publishing import Publisher, open_publisher
from loragate.finetune.run.schedule import checkpoint_interval, total_steps
from loragate.finetune.run.trainer_process import TrainerProcess, training
from loragate.finetune.run.training_data import TrainingData
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import (
    DIED,
    Checkpointed,
    Failed,
    Finished,
    Stepped,
    Stopped,
    TrainerMessage,
    Waiting,
)

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0  # after the engine was unavailable
_LAST_BACKUP_SECONDS = 5.0  # limit on the last backup of a worker that is being stopped
_OUTCOMES: dict[type[TrainerMessage], str] = {Finished: "finished", Stopped: "stopped", Failed: "failed"}


class Attempt:
    """An attempt at the job of a lease. Its outcome is recorded before `run` returns, unless the lease is lost."""

    def __init__(self, context: WorkerContext, lease: WorkerLease) -> None:
        self._context = context
        self._lease = lease
        self._folder = context.config.workspace / "jobs" / lease.job.id
        self._events = RunEvents(lease, self._folder)
        self._backup = CheckpointBackup(context.store, lease, self._folder, context.config.backup_interval_seconds)
        self._exceeded: str | None = None  # a limit of the tenant
        self._control = RunControl(context, lease)

    async def run(self) -> None:
        """Run the attempt. Raise LeaseLost or StoreError: the job belongs to another worker, or will once the lease
        has expired."""
        context, lease = self._context, self._lease
        publisher = await open_publisher(
            context.store, context.base, lease.tenant_id, lease.job, context.probe, lease.worker
        )
        try:
            await restore_run(context.store, lease.tenant_id, lease.job.id, self._folder)
            self._events.load()
            prepared = await lease.unless_interrupted(context.preparation.prepare(lease.tenant_id, lease.job))
            if prepared is None:
                await self._end_stopped(publisher)
                return
            data = await self._data(prepared)
            await self._end(await self._train(data, publisher), data, publisher)
        except JobRejected as rejected:
            await self._fail(rejected.failure, publisher)
        except OSError as error:
            await self._fail(storage_failure(error), publisher)

    async def _data(self, prepared: Prepared) -> TrainingData:
        lease, streaming = self._lease, None
        if prepared.train is None:
            streaming = self._context.preparation.stream(
                lease.tenant_id, lease.job, prepared.recipe, self._folder, self._report
            )
        return TrainingData(prepared, streaming, await asyncio.to_thread(total_steps, prepared))

    async def _train(self, data: TrainingData, publisher: Publisher) -> TrainerMessage:
        last: TrainerMessage = Failed(DIED, "The training process ended without a message.")
        trainer: TrainerProcess | None = None
        assignment = await self._assignment(data)
        checkpoints = PublishedCheckpoints(
            lease=self._lease,
            publisher=publisher,
            events=self._events,
            folder=self._folder / "prompted",
            digest=lambda: data.digest,
            spacing=CheckpointSpacing(data.total_steps, assignment.checkpoint_steps),
        )
        meter = TrainingMeter(self._context, self._lease, data)
        try:
            config = self._context.config
            async with (
                training(assignment, config.patience, config.sandbox) as trainer,
                self._control.running(trainer, data.streaming),
                meter.running(trainer),
            ):
                async for last in trainer.messages():
                    await self._handle(last, assignment.folder, checkpoints, meter)
            self._exceeded = meter.exceeded
            await self._events.flush()
            await checkpoints.finish()
            if isinstance(last, Stopped) and self._lease.order is not Order.CANCEL:
                await self._backup.finish()
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_BACKUP_SECONDS):
                    await self._backup.finish()
            raise
        finally:
            self._lease.trainer_killed = trainer is not None and trainer.killed
            await checkpoints.cancel()
            await self._backup.cancel()
        return last

    async def _handle(
        self, message: TrainerMessage, folder: Path, checkpoints: PublishedCheckpoints, meter: TrainingMeter
    ) -> None:
        if isinstance(message, Stepped):
            self._control.on_step()
            meter.on_step(message.metrics.step)
            if await self._events.add(message.metrics):
                self._context.metrics.record_step(message.metrics)
        elif isinstance(message, Checkpointed):
            step = int(message.folder.rpartition("-")[2])
            checkpoints.add(folder / message.folder, step, last=meter.exceeded is not None)
            self._backup.on_checkpoint()
        elif isinstance(message, Waiting):
            self._control.on_waiting()
            with suppress(StoreError):  # tried again later
                await self._events.flush()
            await self._report(f"Waiting for lines to be appended; {message.steps} steps are done so far.")

    async def _report(self, text: str) -> None:
        with suppress(StoreError):  # loses only this event
            async with self._lease.transaction() as work:
                await work.log_event(self._lease.job.id, text)

    async def _assignment(self, data: TrainingData) -> Assignment:
        config, prepared = self._context.config, data.prepared
        return Assignment(
            recipe=prepared.recipe,
            base=config.model,
            train=data.folder,
            valid=None if prepared.valid is None else prepared.valid.folder,
            folder=self._folder / RUN,
            start=await self._base_adapter(),
            row_tokens=config.row_tokens,
            checkpoint_steps=checkpoint_interval(config.checkpoint_steps, data.total_steps),
            name=self._lease.job.id,
            settings=config.trainer,
        )

    async def _base_adapter(self) -> Path | None:
        start = self._lease.job.request.start
        if start is None:
            return None
        context, folder = self._context, self._folder / "base_adapter"
        return await fetch_base_adapter(context.store, self._lease.tenant_id, start, context.layout, folder)

    async def _end(self, last: TrainerMessage, data: TrainingData, publisher: Publisher) -> None:
        self._context.metrics.record_end(_OUTCOMES[type(last)])
        match last:
            case Finished():
                await self._succeed(last, data, publisher)
            case Stopped():
                await self._end_stopped(publisher)
            case Failed(code=code) if code == DIED:
                if self._lease.interrupted.is_set() or self._control.yielded or self._exceeded:
                    self._lease.trainer_killed = True
                    await self._end_stopped(publisher)
                    return
                async with self._lease.transaction() as work:
                    await work.log_event(self._lease.job.id, last.message, level="warn")
                    await work.record_failure(self._lease.job.id, self._lease.worker)
            case Failed(code=code, message=message):
                await self._fail(Failure(code, message), publisher)

    async def _succeed(self, finished: Finished, data: TrainingData, publisher: Publisher) -> None:
        job = self._lease.job
        try:
            await self._publish(finished, data, publisher)
            results = await publisher.results_file(self._events.to_csv())
        except LeaseLost:
            raise
        except StoreError as error:
            if self._lease.interrupted.is_set():
                await self._end_stopped(publisher)
                return
            if error.status >= 500:
                raise
            await self._fail(Failure(error.code, error.message, error.param), publisher)
            return
        async with self._lease.transaction() as work:
            await work.log_event(job.id, f"The adapter is available as {publisher.name.model}.")
            await work.record_trained_tokens(job.id, self._lease.worker, data.trained_tokens(finished.steps))
            if finished.evaluation is not None:
                await work.log_event(job.id, evaluation_message(finished.evaluation))
            await work.succeed(job.id, self._lease.worker, publisher.name.model, results, finished.evaluation)
        await self._remove_files()

    async def _publish(self, finished: Finished, data: TrainingData, publisher: Publisher) -> None:
        """Publish the result. Retry while the engine is unavailable: a trained adapter must not be trained again."""
        adapter, metrics = self._folder / RUN / finished.folder, self._events.result_metrics(finished.steps)
        while True:
            try:
                await publisher.result(adapter, data.digest, metrics)
                return
            except Unavailable as error:
                if self._lease.interrupted.is_set():
                    raise
                log.warning("job %s: publishing its adapter will be retried: %s", self._lease.job.id, error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _end_stopped(self, publisher: Publisher) -> None:
        job_id, worker = self._lease.job.id, self._lease.worker
        if self._lease.lost:
            return
        if self._exceeded is not None and self._lease.order is None:
            kept = f"{self._exceeded} Its checkpoints are kept; a new job can continue from the last one."
            await self._fail(Failure(LIMIT_EXCEEDED, kept), None)
            return
        if self._lease.order is Order.CANCEL:
            await publisher.withdraw()
            await self._remove_files()
        async with self._lease.transaction() as work:
            killed = self._lease.trainer_killed
            if killed:
                await work.log_event(job_id, "The training process did not end by itself.", level="warn")
            if self._lease.order is Order.CANCEL:
                await work.cancelled(job_id, worker)
            elif self._lease.order is Order.PAUSE:
                await work.pause(job_id, worker, killed=killed)
            elif self._control.yielded is not None:
                await work.log_event(job_id, self._control.yielded)
                await work.step_aside(job_id, worker, killed=killed)
            else:
                await work.requeue(job_id, worker, killed=killed)

    async def _fail(self, failure: Failure, withdrawn: Publisher | None) -> None:
        if withdrawn is not None:
            await withdrawn.withdraw()
        async with self._lease.transaction() as work:
            await work.log_event(self._lease.job.id, failure.message, level="error")
            await work.fail(self._lease.job.id, self._lease.worker, failure)
        await self._remove_files()

    async def _remove_files(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
