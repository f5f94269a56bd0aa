"""What the workspace holds is bounded: what jobs left there that have ended goes, then what can be had again."""

import asyncio
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loragate.adapter_store.errors import NotFound, StoreError
from loragate.adapter_store.jobs.job import JobStatus, OwnedJob
from loragate.finetune.run.checkpoint_backup import RUN
from loragate.finetune.run.context import WorkerContext
from loragate.finetune.run.publishing import open_publisher
from loragate.finetune.run.trainer_process import BOARDS
from loragate.finetune.training.checkpoints.folders import last_checkpoint_step

log = logging.getLogger(__name__)

_JOBS = "jobs"


@dataclass(frozen=True)
class _Found:
    folder: Path
    size: int
    touched_at: float

    @classmethod
    def of(cls, folder: Path) -> "_Found":
        """Whatever comes and goes in there meanwhile."""
        size, touched_at = 0, 0.0
        for place, _, names in os.walk(folder):
            for name in names:
                with suppress(FileNotFoundError):
                    facts = Path(place, name).stat()
                    size, touched_at = size + facts.st_size, max(touched_at, facts.st_mtime)
        return cls(folder, size, touched_at)


async def run_cleanup_loop(place: WorkerContext) -> None:
    """Until cancelled."""
    while True:
        try:
            await tidy(place)
        except (StoreError, OSError) as error:
            log.warning("the workspace is not tidied: %s", error)
        await asyncio.sleep(place.config.cleanup_interval_seconds)


async def tidy(place: WorkerContext) -> None:
    """Once. Raises StoreError, OSError."""
    for folder in await asyncio.to_thread(_folders, place.config.workspace / _JOBS):
        try:
            async with place.store.admin() as admin:
                owned = await admin.jobs.get(folder.name)
            if not owned.job.status.ended:
                continue
            await _withdraw(place, owned)
        except NotFound:  # the job, or its tenant
            pass
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    await _make_room(place)


async def _withdraw(place: WorkerContext, owned: OwnedJob) -> None:
    if owned.job.status is not JobStatus.SUCCEEDED:
        await (await open_publisher(place.store, place.base, owned.tenant_id, owned.job, place.probe)).withdraw()


async def _make_room(place: WorkerContext) -> None:
    """Tokens go first, which can be made again; then runs that wait, as far as they are kept elsewhere, and what was
    told to TensorBoard: whatever nobody touched for longest."""
    found = await asyncio.to_thread(_measured, place.config.workspace)
    over = sum(each.size for each in found) - place.config.max_workspace_bytes
    await place.preparation.tidy(max(0, -over))
    for each in sorted(found, key=lambda each: each.touched_at):
        if over > 0 and await _can_go(place, each.folder):
            await asyncio.to_thread(_remove, each.folder)
            over -= each.size


async def _can_go(place: WorkerContext, folder: Path) -> bool:
    try:
        async with place.store.admin() as admin:
            owned = await admin.jobs.get(folder.name)
        if owned.job.status is JobStatus.RUNNING:
            return False
        if folder.parent.name == BOARDS:
            return True
        async with place.store.tenant(owned.tenant_id) as scope:
            kept = await scope.kept_runs.kept(owned.job.id)
    except NotFound:
        return True
    return kept is not None and kept.step >= last_checkpoint_step(folder / RUN)


def _folders(parent: Path) -> list[Path]:
    return list(parent.iterdir()) if parent.is_dir() else []


def _measured(workspace: Path) -> list[_Found]:
    return [_Found.of(folder) for name in (_JOBS, BOARDS) for folder in _folders(workspace / name)]


def _remove(folder: Path) -> None:
    """At once, for whoever begins to work there; what is left of it then is no job's."""
    shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}")), ignore_errors=True)
