"""One worker's attempt at a job in training: from its tokens to an adapter that answers, or to where it was stopped."""

import asyncio
import logging
import shutil
from contextlib import suppress
from pathlib import Path

from loragate.adapter_store.errors import Failure, StoreError, Unavailable
from loragate.adapter_store.jobs.job import Order
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.finetune.errors import JobRejected, storage_failure
from loragate.finetune.run.base_adapter import fetch_base_adapter
from loragate.finetune.run.checkpoint_backup import RUN, CheckpointBackup, restore_run
from loragate.finetune.run.context import WorkerContext
from loragate.finetune.run.control import RunControl
from loragate.finetune.run.events import RunEvents
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.run.preparation import Prepared
from loragate.finetune.run.published_checkpoints import CheckpointSpacing, PublishedCheckpoints
from loragate.finetune.run.publishing import Publisher, open_publisher
from loragate.finetune.run.schedule import checkpoint_interval, total_steps
from loragate.finetune.run.streaming_file import StreamingTrainingFile
from loragate.finetune.run.trainer_process import training
from loragate.finetune.training.protocol.assignment import Assignment
from loragate.finetune.training.protocol.messages import (
    Checkpointed,
    Failed,
    Finished,
    Stepped,
    Stopped,
    TrainerMessage,
    Waiting,
)

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 5.0  # after the engine was away
_LAST_SECONDS = 5.0  # for what others may go on from, by a worker that is stopped
_DIED = "trainer_died"
_OUTCOMES: dict[type[TrainerMessage], str] = {Finished: "finished", Stopped: "stopped", Failed: "failed"}


class Attempt:
    """At the job that `held` holds. Whatever happens is said before `run` returns, unless the lease is lost."""

    def __init__(self, place: WorkerContext, held: WorkerLease) -> None:
        self._place = place
        self._held = held
        self._folder = place.config.workspace / "jobs" / held.job.id
        self._journal = RunEvents(held, self._folder)
        self._keeper = CheckpointBackup(place.store, held, self._folder, place.config.backup_interval_seconds)
        self._following: StreamingTrainingFile | None = None  # of a job that streams
        self._steps: int | None = None  # that there will be, where that is known
        self._beside = RunControl(place, held)

    async def run(self) -> None:
        """Raises LeaseLost, StoreError; the job is another's then, or is again when the lease has run out."""
        place, held = self._place, self._held
        publisher = await open_publisher(place.store, place.base, held.tenant_id, held.job, place.probe, held.worker)
        try:
            await restore_run(place.store, held.tenant_id, held.job.id, self._folder)
            self._journal.load()
            prepared = await held.unless_interrupted(self._place.preparation.prepare(held.tenant_id, held.job))
            if prepared is None:
                await self._stopped(publisher)
                return
            self._steps = await asyncio.to_thread(total_steps, prepared)
            if prepared.train is None:
                follow = self._place.preparation.follow
                self._following = follow(held.tenant_id, held.job, prepared.recipe, self._folder, self._tell)
            await self._say_end(await self._train(prepared, publisher), prepared, publisher)
        except JobRejected as refused:
            await self._fail(refused.failure, publisher)
        except OSError as error:
            await self._fail(storage_failure(error), publisher)

    async def _train(self, prepared: Prepared, publisher: Publisher) -> TrainerMessage:
        last: TrainerMessage = Failed(_DIED, "The training process said nothing.")
        folder = self._folder / "prompted"
        assignment = await self._assignment(prepared)
        spread = CheckpointSpacing(self._steps, assignment.checkpoint_steps)
        checkpoints = PublishedCheckpoints(
            self._held, publisher, self._journal, folder, lambda: self._digest(prepared), spread
        )
        try:
            async with training(assignment) as trainer, self._beside.going_on(trainer, self._following):
                async for last in trainer.messages():
                    await self._note(last, assignment.folder, checkpoints)
            await self._journal.tell()
            await checkpoints.settle()
            if isinstance(last, Stopped) and self._held.order is not Order.CANCEL:
                await self._keeper.settle()
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self._keeper.settle()
            raise
        finally:
            await checkpoints.stop()
            await self._keeper.stop()
        return last

    async def _note(self, news: TrainerMessage, folder: Path, checkpoints: PublishedCheckpoints) -> None:
        if isinstance(news, Stepped):
            self._beside.stepped()
            if await self._journal.add(news.metrics):
                self._place.metrics.record_step(news.metrics)
        elif isinstance(news, Checkpointed):
            checkpoints.add(folder / news.folder, int(news.folder.rpartition("-")[2]))
            self._keeper.checkpointed()
        elif isinstance(news, Waiting):
            self._beside.waits()
            with suppress(StoreError):  # another time
                await self._journal.tell()
            await self._tell(f"Waits for lines to be appended; so far {news.steps} steps are done.")

    async def _tell(self, words: str) -> None:
        with suppress(StoreError):  # which loses these words and nothing else
            async with self._held.transaction() as work:
                await work.tell(self._held.job.id, words)

    async def _assignment(self, prepared: Prepared) -> Assignment:
        return Assignment(
            recipe=prepared.recipe,
            base=self._place.config.model,
            train=self._tokens(prepared),
            valid=None if prepared.valid is None else prepared.valid.folder,
            folder=self._folder / RUN,
            start=await self._start(),
            row_tokens=self._place.config.row_tokens,
            checkpoint_steps=checkpoint_interval(self._place.config.checkpoint_steps, self._steps),
            name=self._held.job.id,
            settings=self._place.config.trainer,
        )

    def _tokens(self, prepared: Prepared) -> Path:
        if self._following is not None:
            return self._following.folder
        assert prepared.train is not None
        return prepared.train.folder

    def _digest(self, prepared: Prepared) -> str:
        if self._following is not None:
            return self._following.digest
        assert prepared.dataset_digest is not None
        return prepared.dataset_digest

    def _trained(self, steps: int, prepared: Prepared) -> int:
        """Tokens that so many steps have gone through; of a run that stopped early, as many as its share of them."""
        if self._following is not None:
            return self._following.trained(steps, prepared.recipe)
        assert prepared.train is not None
        assert self._steps is not None
        return int(prepared.train.facts["tokens"]) * prepared.recipe.epochs * steps // self._steps

    async def _start(self) -> Path | None:
        start = self._held.job.request.start
        if start is None:
            return None
        return await fetch_base_adapter(self._place.store, self._held.tenant_id, start, self._folder / "start")

    async def _say_end(self, last: TrainerMessage, prepared: Prepared, publisher: Publisher) -> None:
        self._place.metrics.record_end(_OUTCOMES[type(last)])
        match last:
            case Finished():
                await self._succeed(last, prepared, publisher)
            case Stopped():
                await self._stopped(publisher)
            case Failed(code=code) if code == _DIED:
                async with self._held.transaction() as work:
                    await work.tell(self._held.job.id, last.message, level="warn")
                    await work.stumble(self._held.job.id, self._held.worker)
            case Failed(code=code, message=message):
                await self._fail(Failure(code, message), publisher)

    async def _succeed(self, finished: Finished, prepared: Prepared, publisher: Publisher) -> None:
        job = self._held.job
        try:
            await self._publish(finished, prepared, publisher)
            results = await publisher.results_file(self._journal.to_csv())
        except LeaseLost:
            raise
        except StoreError as error:
            if self._held.interrupted.is_set():
                await self._stopped(publisher)
                return
            if error.status >= 500:
                raise
            await self._fail(Failure(error.code, error.message, error.param), publisher)
            return
        async with self._held.transaction() as work:
            await work.tell(job.id, f"The adapter answers as {publisher.name.model}.")
            await work.learned(job.id, self._held.worker, self._trained(finished.steps, prepared))
            await work.succeed(job.id, self._held.worker, publisher.name.model, results)
        await self._clear()

    async def _publish(self, finished: Finished, prepared: Prepared, publisher: Publisher) -> None:
        """Waits for the engine where it is away: what is trained is not to be trained again for that."""
        adapter, figures = self._folder / RUN / finished.folder, self._journal.result_metrics(finished.steps)
        while True:
            try:
                await publisher.result(adapter, self._digest(prepared), figures)
                return
            except Unavailable as error:
                if self._held.interrupted.is_set():
                    raise
                log.warning("job %s: its adapter waits to be published: %s", self._held.job.id, error)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _stopped(self, publisher: Publisher) -> None:
        job_id, worker = self._held.job.id, self._held.worker
        if self._held.lost:
            return
        if self._held.order is Order.CANCEL:
            await publisher.withdraw()
            await self._clear()
        async with self._held.transaction() as work:
            if self._held.order is Order.CANCEL:
                await work.cancelled(job_id, worker)
            elif self._held.order is Order.PAUSE:
                await work.pause(job_id, worker)
            elif self._beside.yielded:
                await work.tell(job_id, "Gives its place to jobs whose lines are there, and goes on after them.")
                await work.step_aside(job_id, worker)
            else:
                await work.give_back(job_id, worker)

    async def _fail(self, failure: Failure, publisher: Publisher) -> None:
        await publisher.withdraw()
        async with self._held.transaction() as work:
            await work.tell(self._held.job.id, failure.message, level="error")
            await work.fail(self._held.job.id, self._held.worker, failure)
        await self._clear()

    async def _clear(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
