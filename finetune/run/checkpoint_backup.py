"""A run is kept beside its tenant's files, and brought from there to a machine that has not come as far."""

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
from loragate.adapter_store.jobs.run_snapshots import KeptRun
from loragate.adapter_store.store import Store
from loragate.finetune.run.events import METRICS
from loragate.finetune.run.lease import WorkerLease
from loragate.finetune.training.checkpoints.folders import checkpoint_step, checkpoints_in, last_checkpoint_step

log = logging.getLogger(__name__)

RUN = "run"  # a folder of the job's
_STATE = "trainer_state.json"
_NAME = re.compile(rf"{METRICS}|{RUN}/checkpoint-[0-9]+/[a-z_]+\.(json|safetensors)")


class CheckpointBackup:
    """Of one run, in a job's `folder`: keeps its newest checkpoint now and then, beside the training. One that cannot
    be kept is told of in the log, and the run goes on.
    """

    def __init__(
        self, store: Store, held: WorkerLease, folder: Path, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._held = held
        self._folder = folder
        self._seconds = seconds  # at the least between two
        self._clock = clock
        self._due = clock() + seconds
        self._kept = 0
        self._keeping: asyncio.Task[None] | None = None

    def checkpointed(self) -> None:
        """There is another one."""
        idle = self._keeping is None or self._keeping.done()
        if idle and self._clock() >= self._due:
            self._keeping = asyncio.create_task(self._keep())

    async def settle(self) -> None:
        """The last one is kept, or given up: whoever goes on may be another."""
        if self._keeping is not None:
            await self._keeping
        await self._keep()

    async def stop(self) -> None:
        """Whatever is under way is given up."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])

    async def _keep(self) -> None:
        done = checkpoints_in(self._folder / RUN)
        if not done or checkpoint_step(done[-1]) <= self._kept:
            return
        links = self._folder / "kept"
        try:
            files = {str(path.relative_to(links)): path for path in _linked(done[-1], self._folder, links)}
            async with self._store.tenant(self._held.tenant_id, write=True) as scope:
                await scope.kept_runs.keep(self._held.job.id, self._held.worker, checkpoint_step(done[-1]), files)
            self._kept = checkpoint_step(done[-1])
        except LeaseLost:
            pass
        except (StoreError, OSError) as error:
            log.warning("job %s: %s is not kept for other machines: %s", self._held.job.id, done[-1].name, error)
        finally:
            self._due = self._clock() + self._seconds
            await asyncio.to_thread(shutil.rmtree, links, ignore_errors=True)


async def restore_run(store: Store, tenant_id: str, job_id: str, folder: Path) -> None:
    """What was kept of it is in the job's `folder`, unless this machine has come as far. Raises StoreError, OSError."""
    async with store.tenant(tenant_id) as scope:
        kept = await scope.kept_runs.kept(job_id)
    if kept is None or kept.step <= last_checkpoint_step(folder / RUN):
        return
    draft = folder / "brought"
    await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
    try:
        await _fetch(store, tenant_id, kept, draft)
    except Unavailable as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        log.warning("job %s: what was kept of its run is not there any more: %s", job_id, error.__cause__)
        return
    _find_the_best_here(draft / RUN / f"checkpoint-{kept.step}" / _STATE, folder / RUN)
    (draft / METRICS).replace(folder / METRICS)
    await asyncio.to_thread(shutil.rmtree, folder / RUN, ignore_errors=True)
    (draft / RUN).rename(folder / RUN)


async def _fetch(store: Store, tenant_id: str, kept: KeptRun, draft: Path) -> None:
    for name, piece_id in kept.files.items():
        if not _NAME.fullmatch(name):
            raise OSError(f"a run has no file named {name!r}")
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        with (draft / name).open("wb") as file:
            async for chunk in store.blobs.of(tenant_id).pieces.read([piece_id]):
                await asyncio.to_thread(file.write, chunk)


def _find_the_best_here(trainer_state: Path, run: Path) -> None:
    """The path in it is another machine's."""
    state = json.loads(trainer_state.read_text())
    if state["best_model_checkpoint"] is not None:
        state["best_model_checkpoint"] = str(run / Path(state["best_model_checkpoint"]).name)
        trainer_state.write_text(json.dumps(state))


def _linked(checkpoint: Path, folder: Path, links: Path) -> Iterator[Path]:
    """All that a run needs to go on from there, out of reach of the run, which removes its own before long."""
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
