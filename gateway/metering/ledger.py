"""The ledger: what requests used, first on this machine's disk, within seconds in the database, exactly once.

    Meter ── slot in `open_calls` while the request runs
      │ close: into memory, at once
      ▼
    `_write`: lines in a segment of the `spool`; the slot is free again; fsync twice a second
      ▼
    `settle`: segments to the database, each removed after the commit that holds it

Whatever dies in between, the next step's work is done again by whoever finds the file, and the database knows each
record's id. While the database is away segments wait on the disk; while the disk is full records wait in memory.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.usage_record import UsageRecord
from loragate.gateway.metering.dead_workers import DeadWorker, dead_workers
from loragate.gateway.metering.lines import line_of, read_lines
from loragate.gateway.metering.meter import Meter
from loragate.gateway.metering.metrics import UsageMetrics
from loragate.gateway.metering.open_calls import OpenCalls
from loragate.gateway.metering.prices import Prices
from loragate.gateway.metering.settler import Settler
from loragate.gateway.metering.spool import Spool

log = logging.getLogger(__name__)

MOST_WAITING = 50_000  # records in memory, where the disk takes none
SETTLE_SECONDS = 1.0
_SYNC_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_LAST_SECONDS = 5.0  # for the database, when this process ends
_KEPT = ".kept"  # behind the name of a segment that somebody should look at

P = ParamSpec("P")
T = TypeVar("T")


class Ledger:
    """One per process. Disk and database are each used by one step at a time, off the event loop."""

    def __init__(self, store: Store, usage_folder: Path, prices: Prices, metrics: UsageMetrics) -> None:
        """Raises OSError where there is no folder to be had."""
        self._usage_folder = usage_folder
        self._prices = prices
        self._metrics = metrics
        self._settler = Settler(store, metrics)
        self._spool = Spool(usage_folder)
        self._open_calls = _open_calls(self._spool.folder, metrics)
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="usage-spool")
        self._waiting: list[tuple[UsageRecord, int | None]] = []
        self._writing = asyncio.Lock()
        self._settling = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._trouble: str | None = None

    def start(self) -> None:
        """Begin to write and to settle."""
        loops = (self._keep_writing, self._keep_syncing, self._keep_settling)
        self._tasks = [asyncio.create_task(loop(), name=f"usage{loop.__name__}") for loop in loops]

    async def close(self) -> None:
        """Bring what is left to the disk, and to the database if it answers soon."""
        self._stop.set()
        self._wake.set()
        await asyncio.gather(*self._tasks)
        await self._write()
        with suppress(StoreError, OSError, TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await self.settle()
        in_use = 0 if self._open_calls is None else self._open_calls.in_use
        if self._open_calls is not None:
            self._open_calls.close()
        await self._on_disk(self._spool.sync)
        await self._on_disk(self._spool.close, remove=not in_use)
        self._disk.shutdown()

    def open(self, record: UsageRecord) -> Meter:
        """A request begins; its tokens and timings are still to come."""
        return Meter(record, self._open_calls, self.record)

    def record(self, record: UsageRecord, slot: int | None = None) -> None:
        """A request, opened in `slot`, has ended. Returns at once: whatever is slow happens later."""
        if len(self._waiting) >= MOST_WAITING:
            self._metrics.lost.inc()
            self._free(slot)
            return
        self._waiting.append((self._priced(record), slot))
        self._wake.set()

    async def written(self) -> None:
        """Everything recorded so far survives a power cut. Raises OSError."""
        if not await self._write():
            raise OSError("the disk takes no usage records")
        await self._on_disk(self._spool.sync)

    async def settle(self) -> None:
        """Brings everything that is on the disk to the database. Raises StoreError and OSError."""
        async with self._settling:
            segments = await self._on_disk(self._spool.sealed)
            if not segments:
                await self._on_disk(self._spool.seal)
                segments = await self._on_disk(self._spool.sealed)
            self._metrics.segments.set(len(segments))
            await self._settle_segments(segments)
            self._metrics.segments.set(0)
            await self._settle_waiting()
            await self._settle_dead()

    async def _keep_writing(self) -> None:
        while not self._stop.is_set():
            await self._wake.wait()
            self._wake.clear()
            if not await self._write():
                await self._pause(_RETRY_SECONDS)
                self._wake.set()

    async def _keep_syncing(self) -> None:
        while not self._stop.is_set():
            await self._pause(_SYNC_SECONDS)
            try:
                await self._on_disk(self._spool.sync)
                if self._open_calls is not None and self._open_calls.in_use:
                    await self._on_disk(self._open_calls.sync)
            except OSError as error:
                self._disk_failed(error)

    async def _keep_settling(self) -> None:
        while not self._stop.is_set():
            try:
                await self.settle()
                self._went_well()
            except (StoreError, OSError) as error:
                self._metrics.settle_failures.inc()
                self._say("the database takes no usage records, they wait on the disk", error)
            except Exception:
                self._metrics.settle_failures.inc()
                log.exception("usage cannot be settled")
            await self._pause(SETTLE_SECONDS)

    async def _write(self) -> bool:
        """From memory to the disk; False where the disk takes nothing."""
        async with self._writing:
            batch, self._waiting = self._waiting, []
            try:
                if batch:
                    await self._on_disk(self._append, batch)
            except OSError as error:
                self._waiting = batch + self._waiting
                self._disk_failed(error)
                return False
            finally:
                self._metrics.waiting.set(len(self._waiting))
            for _, slot in batch:
                self._free(slot)
            return True

    def _append(self, batch: Sequence[tuple[UsageRecord, int | None]]) -> None:
        self._spool.append(b"".join(line_of(record) for record, _ in batch))

    async def _settle_waiting(self) -> None:
        """What the disk would not take, straight to the database."""
        async with self._writing:
            batch = list(self._waiting)
            if not batch:
                return
            await self._settler.settle([record for record, _ in batch])
            del self._waiting[: len(batch)]
            for _, slot in batch:
                self._free(slot)

    async def _settle_segments(self, segments: Sequence[Path]) -> None:
        """One that the database refuses whole does not hold up the others; it is tried again later."""
        refused: Exception | None = None
        for segment in segments:
            try:
                await self._settle_segment(segment)
            except (StoreError, OSError):
                raise
            except Exception as error:
                refused = error
        if refused is not None:
            raise refused

    async def _settle_segment(self, segment: Path) -> None:
        lines = await self._on_disk(lambda: read_lines(segment.read_bytes()))
        accepted = await self._settler.settle(lines.records)
        if accepted and not lines.damaged:
            await self._on_disk(segment.unlink)
            return
        self._metrics.damaged.inc(lines.damaged)
        kept = segment.with_name(segment.name + _KEPT)
        await self._on_disk(segment.rename, kept)
        log.error("%d lines of usage cannot be read, or were refused; they are kept in %s", lines.damaged, kept)

    async def _settle_dead(self) -> None:
        dead = await self._on_disk(dead_workers, self._usage_folder, self._spool.folder)
        try:
            for worker in dead:
                await self._take_over(worker)
        finally:
            for worker in dead:
                worker.release()

    async def _take_over(self, worker: DeadWorker) -> None:
        await self._settle_segments(await self._on_disk(worker.segments))
        cut = [self._priced(record) for record in await self._on_disk(worker.left_open)]
        await self._settler.settle(cut)
        await self._on_disk(worker.remove)
        if cut:
            self._metrics.crashed.inc(len(cut))
            log.warning("%d requests were cut by the death of their worker; they are billed as told by then", len(cut))

    def _priced(self, record: UsageRecord) -> UsageRecord:
        amount = self._prices.amount(record)
        return record if amount is None else replace(record, amount=amount)

    def _free(self, slot: int | None) -> None:
        if self._open_calls is not None and slot is not None:
            self._open_calls.free(slot)

    def _disk_failed(self, error: OSError) -> None:
        self._metrics.spool_failures.inc()
        self._say("the disk takes no usage records, they wait in memory", error)

    def _say(self, trouble: str, error: Exception) -> None:
        """Once, not every second."""
        if trouble != self._trouble:
            log.error("%s: %s", trouble, error)
        self._trouble = trouble

    def _went_well(self) -> None:
        if self._trouble is not None and not self._waiting:
            self._trouble = None
            log.info("usage is settled again")

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _on_disk(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, lambda: work(*arguments, **options))


def _open_calls(folder: Path, metrics: UsageMetrics) -> OpenCalls | None:
    """None where the disk has no room: then a worker's death loses what it was serving."""
    try:
        return OpenCalls(folder)
    except OSError as error:
        metrics.spool_failures.inc()
        log.error("no room for what running requests use, a crash would lose it: %s", error.strerror)
        return None
