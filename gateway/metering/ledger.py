"""The ledger: what requests used, first on this machine's disk, within seconds in the database, exactly once.

    `Meter`, with a slot in `OpenCalls` while the request runs
      │ its end: into memory, at once
      ▼
    `RecordWriter`: lines in a segment of the `Spool`; the slot is free again; fsync twice a second
      ▼
    `SegmentSettler`: segments to the database, each removed after the commit that holds it

Whatever dies in between, the next step's work is done again by whoever finds the file, and the database knows each
record's id. While the database is away segments wait on the disk; while the disk is full records wait in memory.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.metering.disk import Disk
from loragate.gateway.metering.log_once import Trouble
from loragate.gateway.metering.meter import Meter
from loragate.gateway.metering.metrics import UsageMetrics
from loragate.gateway.metering.prices import Prices
from loragate.gateway.metering.segments import SegmentSettler
from loragate.gateway.metering.settler import Settler
from loragate.gateway.metering.writer import RecordWriter
from loragate.gateway.resilience.timeouts import wait_for_event

log = logging.getLogger(__name__)

SETTLE_SECONDS = 1.0
_GATHER_SECONDS = 0.02  # records that end together are written together; until then their slots hold them
_SYNC_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_LAST_SECONDS = 5.0  # for the database, when this process ends


class Ledger:
    """One per process."""

    def __init__(self, store: Store, usage_folder: Path, prices: Prices, metrics: UsageMetrics) -> None:
        """Raises OSError where there is no folder to be had."""
        self._usage_folder = usage_folder
        self._prices = prices
        self._metrics = metrics
        self._disk = Disk()
        self._trouble = Trouble(log)
        self._settler = Settler(store, metrics)
        self._writer = RecordWriter(usage_folder, self._disk, metrics, self._trouble)
        self._segments = SegmentSettler(self._settler, self._disk, metrics, self._trouble)
        self._settling = asyncio.Lock()
        self._reached = True  # the database, when it was last tried
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to write and to settle."""
        loops = (self._keep_writing, self._keep_syncing, self._keep_settling)
        self._tasks = [asyncio.create_task(loop(), name=f"usage{loop.__name__}") for loop in loops]

    async def close(self) -> None:
        """Bring what is left to the disk, and to the database if it answers soon."""
        self._stop.set()
        self._wake.set()
        await asyncio.gather(*self._tasks)
        await self._writer.write()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await self._try_to_settle()
        await self._writer.close()
        self._disk.close()

    def open(self, record: UsageRecord) -> Meter:
        """A request begins; its tokens and timings are still to come."""
        return Meter(record, self._writer.open_calls, self.record)

    def record(self, record: UsageRecord, slot: int | None = None) -> None:
        """A request, opened in `slot`, has ended. Returns at once: whatever is slow happens later."""
        self._writer.put(self._priced(record), slot)
        self._wake.set()

    async def written(self) -> None:
        """Everything recorded so far survives a power cut. Raises OSError."""
        if not await self._writer.write():
            raise OSError("the disk takes no usage records")
        await self._writer.sync()

    async def settle(self) -> int:
        """Brings everything that is on the disk to the database; returns how many segments it refuses.

        Raises StoreError and OSError.
        """
        async with self._settling:
            # Of a database that is away one segment grows, not a new one every second.
            segments = await self._writer.sealed(seal=self._reached)
            self._metrics.segments.set(len(segments))
            self._reached = False
            refused = await self._segments.settle(segments)
            self._reached = True
            self._metrics.segments.set(refused)
            await self._segments.take_over(self._usage_folder, self._writer.folder, self._priced)
            await self._writer.write_past_the_disk(self._settler.settle)
            return refused

    async def _keep_writing(self) -> None:
        while not self._stop.is_set():
            await self._wake.wait()
            await self._pause(_GATHER_SECONDS)
            self._wake.clear()
            if not await self._writer.write():
                await self._pause(_RETRY_SECONDS)
                self._wake.set()

    async def _keep_syncing(self) -> None:
        while not self._stop.is_set():
            await self._pause(_SYNC_SECONDS)
            await self._writer.sync()

    async def _keep_settling(self) -> None:
        while not self._stop.is_set():
            await self._try_to_settle()
            await self._pause(SETTLE_SECONDS)

    async def _try_to_settle(self) -> None:
        try:
            if not await self.settle() and self._writer.idle:
                self._trouble.over()
        except (StoreError, OSError) as error:
            self._metrics.settle_failures.inc()
            self._trouble.say("the database takes no usage records, they wait on the disk", error)
        except Exception:
            self._metrics.settle_failures.inc()
            log.exception("usage cannot be settled")

    def _priced(self, record: UsageRecord) -> UsageRecord:
        amount = self._prices.amount(record)
        return record if amount is None else replace(record, amount=amount)

    async def _pause(self, seconds: float) -> None:
        await wait_for_event(self._stop, seconds)
