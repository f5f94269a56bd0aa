"""Writing of usage records from memory to this worker's files."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.metering.live_counters import LiveCounters
from loragate.gateway.metering.log_once import LogOnce
from loragate.gateway.metering.metrics import UsageMetrics
from loragate.gateway.metering.record_format import encode_record
from loragate.gateway.metering.spool import Spool

log = logging.getLogger(__name__)

MAX_WAITING = 50_000  # records in memory, while they cannot be written to the disk

Batch = list[tuple[UsageRecord, int | None]]  # with the slots of their requests

P = ParamSpec("P")
T = TypeVar("T")


class Disk:
    """Runs calls in a thread of its own, in order and without overlap, so that they block no event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage-spool")

    async def run(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return or raise what `work` does."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*arguments, **options))

    def close(self) -> None:
        """Wait for the current call and stop the thread."""
        self._thread.shutdown()


class RecordWriter:
    """Holds records in memory, and the slots of their requests, until the records are on the disk."""

    def __init__(self, usage_folder: Path, disk: Disk, metrics: UsageMetrics, problem: LogOnce) -> None:
        """Raise OSError if the folder cannot be created."""
        self._disk = disk
        self._metrics = metrics
        self._problem = problem
        self._spool = Spool(usage_folder)
        self.live_counters = _live_counters(self._spool.folder, metrics)
        self._waiting: Batch = []
        self._writing = asyncio.Lock()

    @property
    def folder(self) -> Path:
        """This worker's own folder."""
        return self._spool.folder

    @property
    def idle(self) -> bool:
        """Whether no record waits."""
        return not self._waiting

    def put(self, record: UsageRecord, slot: int | None) -> None:
        """Take the record of a request that has ended. Return at once."""
        self._metrics.requests.ended(record)
        if len(self._waiting) >= MAX_WAITING:
            self._metrics.lost.inc()
            self._free(slot)
        else:
            self._waiting.append((record, slot))

    async def write(self) -> bool:
        """Write all waiting records; return False if the disk fails."""
        async with self._writing:
            batch, self._waiting = self._waiting, []
            try:
                if batch:
                    await self._disk.run(self._append, batch)
            except OSError as error:
                self._waiting = batch + self._waiting
                self._failed(error)
                return False
            finally:
                self._metrics.waiting.set(len(self._waiting))
            self._free_all(batch)
            return True

    async def bypass_disk(self, settle: Callable[[Sequence[UsageRecord]], Awaitable[object]]) -> None:
        """Pass records that cannot be written to the disk to `settle`."""
        async with self._writing:
            batch = list(self._waiting)
            if batch:
                await settle([record for record, _ in batch])
                del self._waiting[: len(batch)]
                self._metrics.waiting.set(len(self._waiting))
                self._free_all(batch)

    async def sync(self) -> None:
        """Make written records and the counters of running requests survive a power cut."""
        try:
            await self._disk.run(self._spool.sync)
            if self.live_counters is not None and self.live_counters.in_use:
                await self._disk.run(self.live_counters.sync)
        except OSError as error:
            self._failed(error)

    async def sealed(self, *, seal: bool) -> list[Path]:
        """Return the segments for the database, oldest first, including the current one if `seal` or if it is alone."""
        segments = await self._disk.run(self._spool.sealed)
        if segments and not seal:
            return segments
        await self._disk.run(self._spool.seal)
        return await self._disk.run(self._spool.sealed)

    async def close(self) -> None:
        """Close the files; what is left waits for the process that takes the folder over."""
        in_use = 0 if self.live_counters is None else self.live_counters.in_use
        if self.live_counters is not None:
            self.live_counters.close()
        with suppress(OSError):
            await self._disk.run(self._spool.sync)
        await self._disk.run(self._spool.close, remove=not in_use)

    def _append(self, batch: Batch) -> None:
        self._spool.append(b"".join(encode_record(record) for record, _ in batch))

    def _free_all(self, batch: Batch) -> None:
        for _, slot in batch:
            self._free(slot)

    def _free(self, slot: int | None) -> None:
        if self.live_counters is not None and slot is not None:
            self.live_counters.free(slot)

    def _failed(self, error: OSError) -> None:
        self._metrics.spool_failures.inc()
        self._problem.report("usage records cannot be written to the disk; they wait in memory", error)


def _live_counters(folder: Path, metrics: UsageMetrics) -> LiveCounters | None:
    """Return None if the disk has no room; then the death of this worker loses what its running requests used."""
    try:
        return LiveCounters(folder)
    except OSError as error:
        metrics.spool_failures.inc()
        log.error("no disk space for the usage of running requests; a crash would lose it: %s", error.strerror)
        return None
