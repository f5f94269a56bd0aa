"""A worker: trains one job at a time and meanwhile validates the files of others."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from loragate.adapter_store.base_model.layout import layout_of
from loragate.adapter_store.errors import Failure, StoreError
from loragate.adapter_store.jobs.job import JobStatus, Order
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.jobs.queue import JobClaim
from loragate.adapter_store.publishing.probe import Probe
from loragate.adapter_store.store import Store
from loragate.adapter_store.usage.training import LIMIT_EXCEEDED
from loragate.finetune.config import WorkerConfig
from loragate.finetune.data.tokenization_config import tokenization_config
from loragate.finetune.errors import JobRejected, storage_failure
from loragate.finetune.jobs.recipe import BaseFacts
from loragate.finetune.run.attempt import Attempt
from loragate.finetune.run.context import EngineLoads, WorkerContext, no_load
from loragate.finetune.run.lease import WorkerLease, held_lease
from loragate.finetune.run.metrics import FinetuneMetrics
from loragate.finetune.run.preparation import Preparation
from loragate.finetune.run.validation_messages import validation_messages
from loragate.finetune.worker.served_model import ServedModel
from loragate.finetune.worker.workspace_cleanup import run_cleanup_loop
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0  # after the database was unavailable
_DIED_TOO_OFTEN = Failure(
    "trainer_died",
    "The training process died several times in a row, possibly for lack of memory: lower `batch_size`.",
)
_INTERNAL_ERROR = Failure("internal_error", "An internal error occurred; the server's log has the details.")


class Worker:
    """A worker for one base model, whose `manifest` an engine has published. When cancelled, it releases its jobs."""

    def __init__(
        self,
        store: Store,
        manifest: pb.Manifest,
        probe: Probe,
        config: WorkerConfig,
        model: ServedModel,
        engine_loads: EngineLoads = no_load,
        metrics: FinetuneMetrics | None = None,
    ) -> None:
        base = BaseFacts(model.hidden_size, manifest.max_model_len, manifest.max_lora_rank, model.quantization)
        preparation = Preparation(store, tokenization_config(manifest), base, config.workspace)
        self._context = WorkerContext(
            store=store,
            preparation=preparation,
            probe=probe,
            config=config,
            base=manifest.model_id,
            layout=layout_of(manifest),
            engine_loads=engine_loads,
            metrics=metrics or FinetuneMetrics(),
        )
        self._store = store
        self._config = config

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_stage_loop(JobStatus.VALIDATING, self._validate), name="validation")
            group.create_task(self._run_stage_loop(JobStatus.QUEUED, self._train), name="training")
            group.create_task(run_cleanup_loop(self._context), name="cleanup")

    async def _run_stage_loop(self, stage: JobStatus, work: Callable[[WorkerLease], Awaitable[None]]) -> None:
        while True:
            try:
                claim = await self._claim(stage)
                if claim is None:
                    await asyncio.sleep(self._config.poll_seconds)
                    continue
                await self._work_on(claim, work)
            except LeaseLost:
                log.warning("a job was taken by another worker")
            except StoreError as error:
                log.warning("the store is unavailable: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _claim(self, stage: JobStatus) -> JobClaim | None:
        limit = self._config.max_jobs_per_tenant
        async with self._store.admin() as admin:
            if not await admin.job_queue.waits(stage, limit):
                return None
        async with self._store.admin(write=True) as admin:
            return await admin.job_queue.claim(self._config.name, stage, limit)

    async def _work_on(self, claim: JobClaim, work: Callable[[WorkerLease], Awaitable[None]]) -> None:
        async with held_lease(self._store, claim, self._config.name) as lease:
            if claim.hopeless and claim.order is not Order.CANCEL:
                async with lease.transaction() as transaction:
                    await transaction.fail(claim.job.id, self._config.name, _DIED_TOO_OFTEN)
                return
            try:
                await work(lease)
            except asyncio.CancelledError:
                with suppress(StoreError):
                    async with lease.transaction() as transaction:
                        await transaction.requeue(claim.job.id, self._config.name, killed=lease.trainer_killed)
                raise
            except StoreError:
                raise
            except Exception:
                log.exception("job %s failed", claim.job.id)
                await self._reject(lease, _INTERNAL_ERROR)

    async def _train(self, lease: WorkerLease) -> None:
        await Attempt(self._context, lease).run()

    async def _validate(self, lease: WorkerLease) -> None:
        job = lease.job
        try:
            prepared = await lease.unless_interrupted(self._context.preparation.prepare(lease.tenant_id, job))
        except JobRejected as rejected:
            await self._reject(lease, rejected.failure)
            return
        except OSError as error:
            await self._reject(lease, storage_failure(error))
            return
        async with lease.transaction() as work:
            if lease.order is Order.CANCEL:
                await work.cancelled(job.id, lease.worker)
            elif lease.order is Order.PAUSE:
                await work.pause(job.id, lease.worker)
            elif prepared is not None:
                tokens = prepared.tokens
                if tokens is not None and (exceeded := await work.exceeded_by(tokens)) is not None:
                    await work.log_event(job.id, exceeded, level="error")
                    await work.fail(job.id, lease.worker, Failure(LIMIT_EXCEEDED, exceeded, "training_file"))
                    return
                for level, message in validation_messages(prepared):
                    await work.log_event(job.id, message, level=level)
                await work.validated(job.id, lease.worker, prepared.recipe.to_document(), tokens)

    async def _reject(self, lease: WorkerLease, failure: Failure) -> None:
        async with lease.transaction() as work:
            await work.log_event(lease.job.id, failure.message, level="error")
            await work.fail(lease.job.id, lease.worker, failure)
