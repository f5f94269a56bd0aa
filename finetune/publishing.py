"""A trained adapter becomes a version like any other: the same checks, the same trial in the engine."""

import asyncio
import io
from pathlib import Path

from loragate.adapter_store.actor import Actor
from loragate.adapter_store.adapter import AliasTarget
from loragate.adapter_store.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.file import FileFacts, Purpose
from loragate.adapter_store.job import Job
from loragate.adapter_store.lineage import Lineage
from loragate.adapter_store.probe import Probe
from loragate.adapter_store.store import Store
from loragate.finetune.model_name import TRAINED, TunedName


async def publish(
    store: Store, tenant_id: str, job: Job, name: TunedName, folder: Path, dataset_digest: str, probe: Probe
) -> None:
    """Published already, as by a worker that died right behind it, it is not published again.

    Raises AdapterInvalid, Conflict (`quota_exceeded`), StorageFull, Unavailable.
    """
    by = Actor(job.id, "")
    if await _is_published(store, tenant_id, name, job):
        return
    config = await asyncio.to_thread((folder / CONFIG_FILE).read_bytes)
    lineage = Lineage(source=job.id, dataset_digest=dataset_digest)
    async with store.tenant(tenant_id, write=True, by=by) as scope:
        version = await scope.publications.publish(
            name.adapter, config, folder / TENSORS_FILE, probe=probe, lineage=lineage
        )
    async with store.tenant(tenant_id, write=True, by=by) as scope:
        await scope.adapters.set_alias(name.adapter, TRAINED, [AliasTarget(version.version)])


async def keep_results(store: Store, tenant_id: str, job: Job, csv: bytes) -> str:
    """The id of the file with a run's metrics."""
    facts = FileFacts(f"{job.id}-metrics.csv", Purpose.FINE_TUNE_RESULTS)
    async with store.tenant(tenant_id, write=True, by=Actor(job.id, "")) as scope:
        return (await scope.files.create(facts, io.BytesIO(csv), len(csv))).id


async def _is_published(store: Store, tenant_id: str, name: TunedName, job: Job) -> bool:
    from loragate.adapter_store.errors import NotFound

    async with store.tenant(tenant_id) as scope:
        try:
            aliases = await scope.adapters.aliases(name.adapter)
        except NotFound:
            return False
    return TRAINED in aliases
