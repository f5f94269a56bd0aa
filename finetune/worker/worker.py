"""Works on jobs, one at a time in training, while the files of others are validated beside it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from loragate.adapter_store.errors import Failure, StoreError
from loragate.adapter_store.jobs.job import JobStatus, Order
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.jobs.queue import Claim
from loragate.adapter_store.publishing.probe import Probe
from loragate.adapter_store.store import Store
from loragate.finetune.config import WorkerConfig
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.data.tokenization_config import tokenization_config
from loragate.finetune.errors import JobRejected, storage_failure
from loragate.finetune.jobs.recipe import BaseFacts
from loragate.finetune.run.attempt import Attempt
from loragate.finetune.run.context import EngineLoads, WorkerContext, alone
from loragate.finetune.run.lease import WorkerLease, held_lease
from loragate.finetune.run.metrics import FinetuneMetrics
from loragate.finetune.run.preparation import Preparation
from loragate.finetune.worker.workspace_cleanup import run_cleanup_loop
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 5.0  # after the database was away
_HOPELESS = Failure(
    "trainer_died",
    "The training process died several times in a row, perhaps of too little memory: lower `batch_size`.",
)
_UNFORESEEN = Failure("internal_error", "Something went wrong on this server; its operator finds more in the log.")


class Worker:
    """Of one base model, whose `manifest` an engine has published. Cancelled, it gives back what it holds."""

    def __init__(
        self,
        store: Store,
        manifest: pb.Manifest,
        probe: Probe,
        config: WorkerConfig,
        hidden_size: int,
        engine_loads: EngineLoads = alone,
        metrics: FinetuneMetrics | None = None,
    ) -> None:
        base = BaseFacts(hidden_size, manifest.max_model_len, manifest.max_lora_rank)
        preparation = Preparation(store, tokenization_config(manifest), base, config.workspace)
        counted = metrics or FinetuneMetrics()
        self._place = WorkerContext(store, preparation, probe, config, manifest.model_id, engine_loads, counted)
        self._store = store
        self._config = config

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_working(JobStatus.VALIDATING, self._validate), name="validating")
            group.create_task(self._keep_working(JobStatus.QUEUED, self._train), name="training")
            group.create_task(run_cleanup_loop(self._place), name="tidying")

    async def _keep_working(self, stage: JobStatus, work: Callable[[WorkerLease], Awaitable[None]]) -> None:
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
                log.warning("the store is away: %s", error)
                await asyncio.sleep(_PATIENCE_SECONDS)

    async def _claim(self, stage: JobStatus) -> Claim | None:
        async with self._store.admin(write=True) as admin:
            return await admin.job_queue.claim(self._config.name, stage, self._config.max_jobs_per_tenant)

    async def _work_on(self, claim: Claim, work: Callable[[WorkerLease], Awaitable[None]]) -> None:
        async with held_lease(self._store, claim, self._config.name) as held:
            if claim.hopeless:
                async with held.transaction() as saying:
                    await saying.fail(claim.job.id, self._config.name, _HOPELESS)
                return
            try:
                await work(held)
            except asyncio.CancelledError:
                with suppress(StoreError):
                    async with held.transaction() as saying:
                        await saying.give_back(claim.job.id, self._config.name)
                raise
            except StoreError:
                raise
            except Exception:
                log.exception("job %s failed", claim.job.id)
                await self._refuse(held, _UNFORESEEN)

    async def _train(self, held: WorkerLease) -> None:
        await Attempt(self._place, held).run()

    async def _validate(self, held: WorkerLease) -> None:
        job = held.job
        try:
            prepared = await held.unless_interrupted(self._place.preparation.prepare(held.tenant_id, job))
        except JobRejected as refused:
            await self._refuse(held, refused.failure)
            return
        except OSError as error:
            await self._refuse(held, storage_failure(error))
            return
        async with held.transaction() as work:
            if held.order is Order.CANCEL:
                await work.cancelled(job.id, held.worker)
            elif held.order is Order.PAUSE:
                await work.pause(job.id, held.worker)
            elif prepared is not None:
                train, recipe = prepared.train, prepared.recipe
                await work.tell(job.id, _found(train, recipe.max_length))
                tokens = None if train is None else train.facts["tokens"] * recipe.epochs
                await work.validated(job.id, held.worker, recipe.to_document(), tokens)

    async def _refuse(self, held: WorkerLease, failure: Failure) -> None:
        async with held.transaction() as work:
            await work.tell(held.job.id, failure.message, level="error")
            await work.fail(held.job.id, held.worker, failure)


def _found(train: TokenFile | None, max_length: int) -> str:
    if train is None:
        return "The training file may still grow: the job ends when it is closed and all of it is read."
    said = [f"The files are good: {train.facts['examples']} examples."]
    if train.facts["cut"]:
        said.append(f"{train.facts['cut']} are longer than `max_length`, {max_length} tokens, and are cut there.")
    if train.facts["dropped"]:
        said.append(f"{train.facts['dropped']} are left out: in their first {max_length} tokens nothing is learned.")
    return " ".join(said)
