"""A store, a tenant and workers in this process, for tests of jobs."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.jobs.job import Job, JobEvent, JobRequest, JobStart
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.store import Store
from loragate.adapter_store.tenants.tenant import Tenant
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.usage.query import Grouping, UsageQuery, UsageSums
from loragate.finetune.config import WorkerConfig
from loragate.finetune.worker.served_model import ServedModel
from loragate.finetune.worker.worker import Worker
from loragate.v1 import engine_pb2 as pb
from tests.finetune.runs import HIDDEN

SECRET_KEY = b"a secret key for the tests, 32+ bytes"


@dataclass
class World:
    store: Store
    tenant: Tenant
    manifest: pb.Manifest
    config: WorkerConfig
    quantization: str = ""  # of the base model's weights

    async def file(self, *rows: Any) -> str:
        """Create a training file of these examples."""
        content = "\n".join(json.dumps(row) for row in rows).encode()
        async with self.store.tenant(self.tenant.id, write=True) as scope:
            facts = FileFacts("data.jsonl", Purpose.FINE_TUNE)
            return (await scope.files.create(facts, io.BytesIO(content), len(content))).id

    async def job(
        self,
        training_file: str,
        start: JobStart | None = None,
        valid: str | None = None,
        method: str = "supervised",
        **hyperparameters: Any,
    ) -> Job:
        request = JobRequest(
            method=method,
            model=self.manifest.model_id,
            training_file=training_file,
            validation_file=valid,
            hyperparameters={"n_epochs": 4, "batch_size": 4, "max_length": 128} | hyperparameters,
            suffix="poet",
            seed=7,
            metadata={},
            start=start,
        )
        async with self.store.tenant(self.tenant.id, write=True) as scope:
            return await scope.jobs.create(request)

    async def order(self, what: str, job: Job) -> None:
        """Give a job an order. Repeat it while the database is busy, as a client would."""
        async with asyncio.timeout(60):
            while True:
                with suppress(Unavailable):
                    async with self.store.tenant(self.tenant.id, write=True) as scope:
                        await getattr(scope.jobs, what)(job.id)
                    return

    async def get(self, job: Job) -> Job:
        async with self.store.tenant(self.tenant.id) as scope:
            return await scope.jobs.get(job.id)

    async def messages(self, job: Job, type: str = "message") -> list[str]:
        """Return the messages, oldest first."""
        return [event.message for event in await self.events(job) if event.type == type]

    async def events(self, job: Job) -> list[JobEvent]:
        """Return the events, oldest first."""
        found: list[JobEvent] = []
        async with self.store.tenant(self.tenant.id) as scope:
            while (page := await scope.jobs.events_since(job.id, len(found))).items:
                found += page.items
        return found

    async def until(self, job: Job, so: Callable[[Job], bool]) -> Job:
        async with asyncio.timeout(500):
            while not so(found := await self.get(job)):
                await asyncio.sleep(0.1)
        return found

    async def usage(self) -> UsageSums:
        """Return the tenant's usage."""
        now = utc_now()
        query = UsageQuery(now - timedelta(days=1), now + timedelta(days=1), frozenset({Grouping.ENDPOINT}))
        async with self.store.tenant(self.tenant.id) as scope:
            return await scope.usage.totals(query)

    def worker(self, name: str = "w1", probe: Any = no_probe, **config: Any) -> Worker:
        chosen = replace(self.config, name=name, **config)
        return Worker(self.store, self.manifest, probe, chosen, ServedModel(chosen.model, HIDDEN, self.quantization))

    async def nothing_left(self) -> None:
        """Return whether the workspace is empty of jobs that have ended: it is cleaned up after them."""
        async with asyncio.timeout(100):
            while list((self.config.workspace / "jobs").glob("*")):
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def working(self, name: str = "w1", probe: Any = no_probe, **config: Any) -> AsyncIterator[None]:
        running = asyncio.create_task(self.worker(name, probe, **config).run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled(), running.exception()


def chats(count: int) -> list[Any]:
    replies = ("jumps over", "the lazy dog", "says no")
    return [
        {"messages": [{"role": "user", "content": f"fox {n}"}, {"role": "assistant", "content": replies[n % 3]}]}
        for n in range(count)
    ]


def ended(job: Job) -> bool:
    return job.status.ended


async def the_curve(world: World, job: Job) -> dict[int, float]:
    """Return the training loss of each step, from the result file."""
    async with world.store.tenant(world.tenant.id) as scope:
        content = await scope.files.pieces(job.result_file or "")
    reported = b"".join([chunk async for chunk in world.store.blobs.of(world.tenant.id).pieces.read(content)])
    rows = csv.DictReader(io.StringIO(reported.decode()))
    return {int(row["step"]): float(row["train_loss"]) for row in rows}
