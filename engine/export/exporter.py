"""Exports of merged models, one at a time, on a thread of low priority."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import safe_open

from loragate.engine.adapters.files import AdapterFiles
from loragate.engine.adapters.weights.load import TENSORS_FILE
from loragate.engine.export.archive import Change, archive_parts, archive_size
from loragate.engine.export.checkpoint import CheckpointUnreadable, read_checkpoint
from loragate.engine.export.merge import NotMergeable, merge, merged_modules
from loragate.engine.sequence.request import AdapterKey
from loragate.kernels.cpu.openmp import compute_alone
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.plan import AdapterPlan

_NICENESS = 19
_BESIDE_REQUESTS = 16 << 20  # bytes per second: the event loop and the gateway pass parts on beside tokens


class ExporterBusy(Exception):
    """Another export is running."""


class Export:
    """A running export. `size` is that of the whole archive in bytes."""

    def __init__(
        self, size: int, next_part: Callable[[], "asyncio.Future[bytes | None]"], is_busy: Callable[[], bool]
    ) -> None:
        self.size = size
        self._next_part = next_part
        self._is_busy = is_busy

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the archive, slowly while requests run. A part is computed once the one before it was taken. Raise
        OSError."""
        began = time.monotonic()
        while (part := await self._next_part()) is not None:
            yield part
            if self._is_busy():
                await asyncio.sleep(began + len(part) / _BESIDE_REQUESTS - time.monotonic())
            began = time.monotonic()


class Exporter:
    """Merges adapters into the checkpoint in `folder`. Used on the event loop.

    `problem` says why nothing can be exported, or is None. `is_busy` returns whether requests run.
    """

    def __init__(
        self,
        folder: Path,
        layout: BaseLayout,
        files: AdapterFiles[Any],
        problem: str | None = None,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._files = files
        self._problem = problem
        self._is_busy = is_busy
        self._busy = False

    @asynccontextmanager
    async def export(self, key: AdapterKey) -> AsyncIterator[Export]:
        """Export the base model with this adapter merged into it, until the block ends.

        Raise ExporterBusy, NotMergeable, AdapterUnavailable and OSError.
        """
        if self._problem is not None:
            raise NotMergeable(self._problem)
        if self._busy:
            raise ExporterBusy("another export is running")
        self._busy = True
        try:
            async with self._files.opened(key) as (directory, reading):
                with ThreadPoolExecutor(1, initializer=_begin_thread) as thread:
                    run = partial(asyncio.get_running_loop().run_in_executor, thread)
                    size, parts = await run(_prepare, self._folder, self._layout, directory, reading.plan)
                    try:
                        yield Export(size, lambda: run(next, parts, None), self._is_busy)
                    finally:
                        await run(parts.close)  # after the part that is being computed
        finally:
            self._busy = False


def _prepare(folder: Path, layout: BaseLayout, adapter: Path, plan: AdapterPlan) -> tuple[int, Generator[bytes]]:
    try:
        checkpoint = read_checkpoint(folder)
    except CheckpointUnreadable as error:
        raise NotMergeable(f"The base model cannot be exported: {error}.") from error
    modules = merged_modules(plan, layout, checkpoint)

    def parts() -> Generator[bytes]:
        with safe_open(adapter / TENSORS_FILE, framework="pt") as file:
            changes: dict[str, Change] = {
                name: partial(merge, lora=lora, read=lambda spec: file.get_tensor(spec.name))
                for name, lora in modules.items()
            }
            yield from archive_parts(checkpoint, changes)

    return archive_size(checkpoint), parts()


def _begin_thread() -> None:
    compute_alone()
    if sys.platform == "linux":  # where each thread has a priority
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
