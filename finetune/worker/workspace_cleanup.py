"""Bounds the size of the workspace: deletes the files of ended jobs and the tokens of deleted files, then files
that can be recreated or restored."""

import asyncio
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loragate.adapter_store.errors import NotFound, StoreError
from loragate.adapter_store.jobs.job import JobStatus, OwnedJob
from loragate.adapter_store.usage.training import LIMIT_EXCEEDED
from loragate.finetune.run.checkpoint_backup import RUN
from loragate.finetune.run.context import WorkerContext
from loragate.finetune.run.publishing import open_publisher
from loragate.finetune.run.trainer_environment import TENSORBOARD
from loragate.finetune.training.checkpoints.folders import last_checkpoint_step

log = logging.getLogger(__name__)

_JOBS = "jobs"


@dataclass(frozen=True)
class _FolderSize:
    folder: Path
    size: int
    touched_at: float

    @classmethod
    def measure(cls, folder: Path) -> "_FolderSize":
        """Measure a folder whose files may appear and disappear meanwhile."""
        size, touched_at = 0, 0.0
        for root, _, names in os.walk(folder):
            for name in names:
                with suppress(FileNotFoundError):
                    facts = Path(root, name).stat()
                    size, touched_at = size + facts.st_size, max(touched_at, facts.st_mtime)
        return cls(folder, size, touched_at)


async def run_cleanup_loop(context: WorkerContext) -> None:
    """Clean up at intervals until cancelled."""
    while True:
        try:
            await clean_up(context)
        except (StoreError, OSError) as error:
            log.warning("cleaning up the workspace failed: %s", error)
        await asyncio.sleep(context.config.cleanup_interval_seconds)


async def clean_up(context: WorkerContext) -> None:
    """Clean up once. Raise StoreError, OSError."""
    for folder in await asyncio.to_thread(_folders, context.config.workspace / _JOBS):
        try:
            async with context.store.admin() as admin:
                owned = await admin.jobs.get(folder.name)
            if not owned.job.status.ended:
                continue
            await _withdraw(context, owned)
        except NotFound:  # the job, or its tenant, was deleted
            pass
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    await context.preparation.forget_deleted()
    await _free_space(context)


async def _withdraw(context: WorkerContext, owned: OwnedJob) -> None:
    kept = owned.job.error is not None and owned.job.error.code == LIMIT_EXCEEDED
    if owned.job.status is not JobStatus.SUCCEEDED and not kept:
        await (await open_publisher(context.store, context.base, owned.tenant_id, owned.job, context.probe)).withdraw()


async def _free_space(context: WorkerContext) -> None:
    """Delete cached tokens, which can be made again, then suspended runs that are backed up elsewhere and TensorBoard
    logs, the least recently used first, while the workspace is too large or the disk has too little room."""
    config = context.config
    found = await asyncio.to_thread(_measured, config.workspace)
    folder = next(each for each in (config.workspace, *config.workspace.parents) if each.exists())
    free = shutil.disk_usage(folder).free
    over = max(sum(each.size for each in found) - config.max_workspace_bytes, config.min_free_bytes - free)
    await context.preparation.prune(max(0, -over))
    for each in sorted(found, key=lambda each: each.touched_at):
        if over > 0 and await _can_delete(context, each.folder):
            await asyncio.to_thread(_remove, each.folder)
            over -= each.size


async def _can_delete(context: WorkerContext, folder: Path) -> bool:
    try:
        async with context.store.admin() as admin:
            owned = await admin.jobs.get(folder.name)
        if owned.job.status is JobStatus.RUNNING:
            return False
        if folder.parent.name == TENSORBOARD:
            return True
        async with context.store.tenant(owned.tenant_id) as scope:
            kept = await scope.run_snapshots.latest(owned.job.id)
    except NotFound:
        return True
    return kept is not None and kept.step >= last_checkpoint_step(folder / RUN)


def _folders(parent: Path) -> list[Path]:
    return list(parent.iterdir()) if parent.is_dir() else []


def _measured(workspace: Path) -> list[_FolderSize]:
    return [_FolderSize.measure(folder) for name in (_JOBS, TENSORBOARD) for folder in _folders(workspace / name)]


def _remove(folder: Path) -> None:
    """Rename the folder before deleting it, so that a job that starts now finds either all of it or nothing."""
    shutil.rmtree(folder.rename(folder.with_name(f".{folder.name}")), ignore_errors=True)
