"""Publishes trained adapters: the same checks, and the same trial in the engine, as for uploads."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS, AliasTarget
from loragate.adapter_store.adapters.lineage import Lineage
from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.jobs.job import Job
from loragate.adapter_store.publishing.probe import Probe
from loragate.adapter_store.scopes import TenantScope
from loragate.adapter_store.store import Store
from loragate.finetune.jobs.model_name import TRAINED, TunedName, checkpoint_alias, tuned_name

_NO_METRICS: Mapping[str, float] = {}


async def open_publisher(
    store: Store, base: str, tenant_id: str, job: Job, probe: Probe, worker: str | None = None
) -> "Publisher":
    """Return the publisher of a job on the base model `base`. `worker` holds the job, or is None for a job that has
    ended."""
    async with store.admin() as admin:
        tenant = await admin.tenants.get(tenant_id)
    name = tuned_name(base, tenant.name, job.request.suffix, job.id)
    return Publisher(store, base, tenant_id, job, name, probe, worker)


@dataclass(frozen=True)
class Publisher:
    """Publishes the adapters of one job. What is already published, for example by a worker that died right afterwards,
    is not published again.

    Every method raises StoreError: AdapterInvalid, Conflict (`quota_exceeded`), StorageFull, Unavailable, and
    LeaseLost: a worker that resumes after a hang, and whose job is another's by now, changes nothing.
    """

    store: Store
    base: str
    tenant_id: str
    job: Job
    name: TunedName
    probe: Probe
    worker: str | None

    async def result(self, folder: Path, dataset_digest: str, metrics: Mapping[str, float] = _NO_METRICS) -> None:
        """Publish the result and make it available under the job's model name."""
        if TRAINED in await self._aliases():
            return
        version = await self._publish(folder, DEFAULT_ALIAS, dataset_digest, metrics)
        async with self._writing() as scope:
            await scope.adapters.set_alias(self.name.adapter, TRAINED, [AliasTarget(version)])

    async def checkpoint(self, folder: Path, step: int, dataset_digest: str, metrics: Mapping[str, float]) -> str:
        """Publish a checkpoint and return its model name."""
        alias = checkpoint_alias(step)
        if alias not in await self._aliases():
            await self._publish(folder, alias, dataset_digest, metrics)
        return self.name.checkpoint(step)

    async def withdraw(self) -> None:
        """Delete the adapter unless it has a result: without one there are no checkpoints either."""
        if TRAINED not in await self._aliases():
            async with self._writing() as scope:
                with suppress(NotFound):
                    await scope.adapters.delete(self.name.adapter)

    async def results_file(self, csv: bytes) -> str:
        """Store the file with a run's metrics and return its id."""
        facts = FileFacts(f"{self.job.id}-metrics.csv", Purpose.FINE_TUNE_RESULTS)
        async with self._writing() as scope:
            return (await scope.files.create(facts, io.BytesIO(csv), len(csv))).id

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[TenantScope]:
        """Open a transaction that only commits if the lease is still held at its end."""
        async with self.store.tenant(self.tenant_id, write=True, by=Actor(self.job.id, "")) as scope:
            yield scope
            if self.worker is not None:
                await scope.job_lease.require(self.job.id, self.worker)

    async def _publish(self, folder: Path, alias: str, dataset_digest: str, metrics: Mapping[str, float]) -> int:
        config = json.loads(await asyncio.to_thread((folder / CONFIG_FILE).read_bytes))
        config["base_model_name_or_path"] = self.base  # rather than its path on this machine
        start = self.job.request.start
        notes = None if start is None else f"Continues {start.name}:{start.version} ({start.digest})."
        lineage = Lineage(self.job.id, dataset_digest, evaluation=metrics, notes=notes)
        async with self._writing():
            pass  # raises LeaseLost before any work is done
        async with self._writing() as scope:
            version = await scope.publisher.publish(
                self.name.adapter,
                json.dumps(config).encode(),
                folder / TENSORS_FILE,
                probe=self.probe,
                alias=alias,
                lineage=lineage,
                trained_here=True,
            )
        return version.version

    async def _aliases(self) -> frozenset[str]:
        async with self.store.tenant(self.tenant_id) as scope:
            try:
                return frozenset(await scope.adapters.aliases(self.name.adapter))
            except NotFound:
                return frozenset()
