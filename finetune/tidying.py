"""What jobs left in the workspace that ended while this worker did not hold them."""

import asyncio
import logging
import shutil
from pathlib import Path

from loragate.adapter_store.errors import NotFound, StoreError
from loragate.adapter_store.job import JobStatus, OwnedJob
from loragate.finetune.publishing import publisher_of
from loragate.finetune.workplace import Workplace

log = logging.getLogger(__name__)


async def keep_tidy(place: Workplace) -> None:
    """Until cancelled."""
    while True:
        try:
            await tidy(place)
        except (StoreError, OSError) as error:
            log.warning("the workspace is not tidied: %s", error)
        await asyncio.sleep(place.config.tidy_seconds)


async def tidy(place: Workplace) -> None:
    """Once. Raises StoreError, OSError."""
    await place.preparation.tidy(place.config.max_workspace_bytes)
    for folder in await asyncio.to_thread(_folders, place.config.workspace / "jobs"):
        try:
            async with place.store.admin() as admin:
                owned = await admin.jobs.get(folder.name)
            if not owned.job.status.ended:
                continue
            await _withdraw(place, owned)
        except NotFound:  # the job, or its tenant
            pass
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _withdraw(place: Workplace, owned: OwnedJob) -> None:
    if owned.job.status is not JobStatus.SUCCEEDED:
        await (await publisher_of(place.store, place.base, owned.tenant_id, owned.job, place.probe)).withdraw()


def _folders(parent: Path) -> list[Path]:
    return list(parent.iterdir()) if parent.is_dir() else []
