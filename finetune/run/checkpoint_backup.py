"""Backs up a run's checkpoints beside its tenant's files, and restores them on a machine that has no newer one."""

import asyncio
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.adapter_store.errors import StoreError, Unavailable
from loragate.adapter_store.jobs.lease import LeaseLost
from loragate.adapter_store.jobs.run_snapshots import RunSnapshot
from loragate.adapter_store.store import Store
from loragate.finetune.run.events import METRICS
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.training.checkpoints.folders import checkpoint_step, checkpoints_in, last_checkpoint_step

log = logging.getLogger(__name__)

RUN = "run"  # a folder of the job's
_STATE = "trainer_state.json"
_NAME = re.compile(rf"{METRICS}|{RUN}/checkpoint-[0-9]+/[a-z_]+\.(json|safetensors)")


class CheckpointBackup:
    """Backs up the newest checkpoint of one run, in the job's `folder`, at intervals in the background.

    A failed backup is logged, and the run goes on.
    """

    def __init__(
        self,
        store: Store,
        lease: WorkerLease,
        folder: Path,
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._lease = lease
        self._folder = folder
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._due = clock() + interval_seconds
        self._saved_step = 0
        self._saving: asyncio.Task[None] | None = None

    def on_checkpoint(self) -> None:
        """Start a backup if one is due: there is a new checkpoint."""
        idle = self._saving is None or self._saving.done()
        if idle and self._clock() >= self._due:
            self._saving = asyncio.create_task(self._save())

    async def finish(self) -> None:
        """Back up the last checkpoint: another worker may continue the run."""
        if self._saving is not None:
            await self._saving
        await self._save()

    async def cancel(self) -> None:
        """Cancel a backup in progress."""
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.wait([self._saving])

    async def _save(self) -> None:
        done = checkpoints_in(self._folder / RUN)
        if not done or checkpoint_step(done[-1]) <= self._saved_step:
            return
        links = self._folder / "kept"
        try:
            files = {str(path.relative_to(links)): path for path in _linked(done[-1], self._folder, links)}
            async with self._store.tenant(self._lease.tenant_id, write=True) as scope:
                await scope.run_snapshots.save(self._lease.job.id, self._lease.worker, checkpoint_step(done[-1]), files)
            self._saved_step = checkpoint_step(done[-1])
        except LeaseLost:
            pass
        except (StoreError, OSError) as error:
            log.warning("job %s: the backup of %s failed: %s", self._lease.job.id, done[-1].name, error)
        finally:
            self._due = self._clock() + self._interval_seconds
            await asyncio.to_thread(shutil.rmtree, links, ignore_errors=True)


async def restore_run(store: Store, tenant_id: str, job_id: str, folder: Path) -> None:
    """Restore the run's backup in the job's `folder`, unless this machine has a checkpoint as new.

    Raise StoreError, OSError.
    """
    async with store.tenant(tenant_id) as scope:
        kept = await scope.run_snapshots.latest(job_id)
    if kept is None or kept.step <= last_checkpoint_step(folder / RUN):
        return
    draft = folder / "brought"
    await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
    try:
        await _download(store, tenant_id, kept, draft)
    except Unavailable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        log.warning("job %s: the backup of its run is missing: %s", job_id, error.__cause__)
        return
    _relocate_best_checkpoint(draft / RUN / f"checkpoint-{kept.step}" / _STATE, folder / RUN)
    (draft / METRICS).replace(folder / METRICS)
    await asyncio.to_thread(shutil.rmtree, folder / RUN, ignore_errors=True)
    (draft / RUN).rename(folder / RUN)


async def _download(store: Store, tenant_id: str, kept: RunSnapshot, draft: Path) -> None:
    for name, piece_id in kept.files.items():
        if not _NAME.fullmatch(name):
            raise OSError(f"a run has no file named {name!r}")
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        with (draft / name).open("wb") as file:
            async for chunk in store.blobs.of(tenant_id).pieces.read([piece_id]):
                await asyncio.to_thread(file.write, chunk)


def _relocate_best_checkpoint(trainer_state: Path, run: Path) -> None:
    """Replace the path of the best checkpoint, which is another machine's."""
    state = json.loads(trainer_state.read_text())
    if state["best_model_checkpoint"] is not None:
        state["best_model_checkpoint"] = str(run / Path(state["best_model_checkpoint"]).name)
        trainer_state.write_text(json.dumps(state))


def _linked(checkpoint: Path, folder: Path, links: Path) -> Iterator[Path]:
    """Link everything that is needed to resume from the checkpoint, because the run removes old checkpoints."""
    shutil.rmtree(links, ignore_errors=True)
    best = json.loads((checkpoint / _STATE).read_text())["best_model_checkpoint"]
    wanted = list(checkpoint.iterdir())
    if best is not None and Path(best).name != checkpoint.name:
        wanted += [folder / RUN / Path(best).name / name for name in (CONFIG_FILE, TENSORS_FILE)]
    for path in wanted:
        link = links / path.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        os.link(path, link)
        yield link
    yield Path(shutil.copy(folder / METRICS, links / METRICS))
