"""What goes on beside the process that trains: its worker listens to everybody for it."""

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
    """Of one attempt at a job: the trainer is stopped when its tenant wants it or its lease is lost, gives way to the
    engine, and gives its place to others while it waits for lines. `stepped` and `waits` tell what it says of itself.
    """

    def __init__(self, place: WorkerContext, held: WorkerLease) -> None:
        self.yielded = False  # for others
        self._place = place
        self._held = held
        self._broken: Exception | None = None  # what is wrong with the file that it follows
        self._waiting = asyncio.Event()  # for lines

    def stepped(self) -> None:
        """There were lines."""
        self._waiting.clear()

    def waits(self) -> None:
        """For lines that are not there."""
        self._waiting.set()

    @asynccontextmanager
    async def going_on(self, trainer: TrainerProcess, following: StreamingTrainingFile | None) -> AsyncIterator[None]:
        """For as long as the block lasts. Raises behind it what was wrong with the file that it follows, if it does."""
        tasks = [
            asyncio.create_task(self._stop_when_interrupted(trainer), name="interruption"),
            asyncio.create_task(self._give_way(trainer), name="giving way"),
            asyncio.create_task(self.stop_for_others(trainer), name="others"),
        ]
        if following is not None:
            tasks.append(asyncio.create_task(self._follow(trainer, following), name="following"))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._broken is not None:
            raise self._broken

    async def stop_for_others(self, trainer: TrainerProcess) -> None:
        """Who waits for lines holds nobody up who has them."""
        while not self.yielded:
            await self._waiting.wait()
            await asyncio.sleep(self._place.config.data_wait_seconds)
            self.yielded = self._waiting.is_set() and await self._others_wait()
        trainer.stop()

    async def _stop_when_interrupted(self, trainer: TrainerProcess) -> None:
        await self._held.interrupted.wait()
        trainer.stop()

    async def _give_way(self, trainer: TrainerProcess) -> None:
        async for load in self._place.engine_loads():
            trainer.set_engine_load(load)
            self._place.metrics.record_engine_load(load)

    async def _follow(self, trainer: TrainerProcess, following: StreamingTrainingFile) -> None:
        try:
            await following.run()
        except Exception as broken:  # whatever it is: nobody would bring the trainer more to train on
            self._broken = broken
            trainer.stop()

    async def _others_wait(self) -> bool:
        with suppress(StoreError):
            async with self._place.store.admin() as admin:
                return JobStatus.QUEUED in await admin.job_queue.waiting()
        return False
