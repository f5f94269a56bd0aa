"""One worker's attempt at a job in training: from its tokens to an adapter that answers, or to where it was stopped."""

import asyncio
import logging
import math
import shutil
from pathlib import Path

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.failure import Failure
from loragate.adapter_store.job import Order
from loragate.adapter_store.probe import Probe
from loragate.adapter_store.store import Store
from loragate.finetune.holding import Holding
from loragate.finetune.journal import Journal
from loragate.finetune.model_name import tuned_name
from loragate.finetune.preparing import JobRefused, Preparation, Prepared
from loragate.finetune.publishing import keep_results, publish
from loragate.finetune.trainer_process import TrainerProcess, training
from loragate.finetune.training.assignment import Assignment
from loragate.finetune.training.news import Checkpointed, Failed, Finished, News, Stepped, Stopped
from loragate.finetune.worker_config import WorkerConfig

log = logging.getLogger(__name__)

_CHECKPOINTS_OF_A_RUN = 4  # at least
_DIED = "trainer_died"


class Attempt:
    """At the job that `held` holds. Whatever happens is said before `run` returns, unless the lease is lost."""

    def __init__(
        self, store: Store, preparation: Preparation, probe: Probe, config: WorkerConfig, held: Holding, base: str
    ) -> None:
        self._store = store
        self._preparation = preparation
        self._probe = probe
        self._config = config
        self._held = held
        self._base = base
        self._folder = config.workspace / "jobs" / held.job.id
        self._journal = Journal(held, self._folder)

    async def run(self) -> None:
        """Raises LeaseLost, StoreError; the job is another's then, or is again when the lease has run out."""
        try:
            prepared = await self._preparation.prepare(self._held.tenant_id, self._held.job)
            await self._say_end(await self._train(prepared), prepared)
        except JobRefused as refused:
            await self._fail(refused.failure)

    async def _train(self, prepared: Prepared) -> News:
        last: News = Failed(_DIED, "The training process said nothing.")
        async with training(self._assignment(prepared)) as trainer:
            watching = asyncio.create_task(self._stop_when_interrupted(trainer), name="interruption")
            try:
                async for last in trainer.news():
                    await self._note(last)
            finally:
                watching.cancel()
        await self._journal.tell()
        return last

    async def _note(self, news: News) -> None:
        if isinstance(news, Stepped):
            await self._journal.add(news.metrics)
        elif isinstance(news, Checkpointed):
            step = int(news.folder.rpartition("-")[2])
            async with self._held.saying() as work:
                await work.checkpoint(self._held.job.id, self._held.worker, step, {}, None)

    async def _stop_when_interrupted(self, trainer: TrainerProcess) -> None:
        await self._held.interrupted.wait()
        trainer.stop()

    def _assignment(self, prepared: Prepared) -> Assignment:
        recipe = prepared.recipe
        steps = recipe.epochs * math.ceil(len(prepared.train) / recipe.batch_size)
        return Assignment(
            recipe=recipe,
            base=self._config.model,
            train=prepared.train.folder,
            valid=None if prepared.valid is None else prepared.valid.folder,
            folder=self._folder / "run",
            start=None,
            row_tokens=self._config.row_tokens,
            checkpoint_steps=max(1, min(self._config.checkpoint_steps, steps // _CHECKPOINTS_OF_A_RUN)),
            threads=self._config.threads,
            device=self._config.device,
        )

    async def _say_end(self, last: News, prepared: Prepared) -> None:
        match last:
            case Finished(folder=folder):
                await self._succeed(self._folder / "run" / folder, prepared)
            case Stopped():
                await self._stopped()
            case Failed(code=code) if code == _DIED:
                async with self._held.saying() as work:
                    await work.tell(self._held.job.id, last.message, level="warn")
                    await work.stumble(self._held.job.id, self._held.worker)
            case Failed(code=code, message=message):
                await self._fail(Failure(code, message))

    async def _succeed(self, adapter: Path, prepared: Prepared) -> None:
        job, tenant_id = self._held.job, self._held.tenant_id
        async with self._store.admin() as admin:
            tenant = await admin.tenants.get(tenant_id)
        name = tuned_name(self._base, tenant.name, job.request.suffix, job.id)
        try:
            await publish(self._store, tenant_id, job, name, adapter, prepared.dataset_digest, self._probe)
            results = await keep_results(self._store, tenant_id, job, self._journal.as_csv())
        except StoreError as error:
            if error.status >= 500:
                raise
            await self._fail(Failure(error.code, error.message, error.param))
            return
        async with self._held.saying() as work:
            await work.tell(job.id, f"The adapter answers as {name.model}.")
            await work.succeed(job.id, self._held.worker, name.model, results)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _stopped(self) -> None:
        job_id, worker = self._held.job.id, self._held.worker
        if self._held.lost:
            return
        async with self._held.saying() as work:
            if self._held.order is Order.CANCEL:
                await work.cancelled(job_id, worker)
            elif self._held.order is Order.PAUSE:
                await work.pause(job_id, worker)
            else:
                await work.give_back(job_id, worker)
        if self._held.order is Order.CANCEL:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _fail(self, failure: Failure) -> None:
        async with self._held.saying() as work:
            await work.tell(self._held.job.id, failure.message, level="error")
            await work.fail(self._held.job.id, self._held.worker, failure)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
