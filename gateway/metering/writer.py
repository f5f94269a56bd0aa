"""From memory to this worker's files."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.metering.disk import Disk
from loragate.gateway.metering.live_counters import OpenCalls
from loragate.gateway.metering.log_once import Trouble
from loragate.gateway.metering.metrics import UsageMetrics
from loragate.gateway.metering.record_format import line_of
from loragate.gateway.metering.spool import Spool

log = logging.getLogger(__name__)

MOST_WAITING = 50_000  # records in memory, where the disk takes none

Waiting = list[tuple[UsageRecord, int | None]]


class RecordWriter:
    """Records wait in memory until the disk has them; until then each keeps the slot of its request."""

    def __init__(self, usage_folder: Path, disk: Disk, metrics: UsageMetrics, trouble: Trouble) -> None:
        """Raises OSError where there is no folder to be had."""
        self._disk = disk
        self._metrics = metrics
        self._trouble = trouble
        self._spool = Spool(usage_folder)
        self.open_calls = _open_calls(self._spool.folder, metrics)
        self._waiting: Waiting = []
        self._writing = asyncio.Lock()

    @property
    def folder(self) -> Path:
        """This worker's own."""
        return self._spool.folder

    @property
    def idle(self) -> bool:
        """Nothing waits."""
        return not self._waiting

    def put(self, record: UsageRecord, slot: int | None) -> None:
        """A request has ended. Returns at once."""
        self._metrics.requests.ended(record)
        if len(self._waiting) >= MOST_WAITING:
            self._metrics.lost.inc()
            self._free(slot)
        else:
            self._waiting.append((record, slot))

    async def write(self) -> bool:
        """Everything that waits; False where the disk takes nothing."""
        async with self._writing:
            batch, self._waiting = self._waiting, []
            try:
                if batch:
                    await self._disk.do(self._append, batch)
            except OSError as error:
                self._waiting = batch + self._waiting
                self._failed(error)
                return False
            finally:
                self._metrics.waiting.set(len(self._waiting))
            self._free_all(batch)
            return True

    async def write_past_the_disk(self, take: Callable[[Sequence[UsageRecord]], Awaitable[object]]) -> None:
        """What waits because the disk takes nothing, to somebody who does."""
        async with self._writing:
            batch = list(self._waiting)
            if batch:
                await take([record for record, _ in batch])
                del self._waiting[: len(batch)]
                self._metrics.waiting.set(len(self._waiting))
                self._free_all(batch)

    async def sync(self) -> None:
        """What was written, and what running requests were told, survives a power cut."""
        try:
            await self._disk.do(self._spool.sync)
            if self.open_calls is not None and self.open_calls.in_use:
                await self._disk.do(self.open_calls.sync)
        except OSError as error:
            self._failed(error)

    async def sealed(self, *, seal: bool) -> list[Path]:
        """Segments for the database, oldest first; what was written last is among them if it is to be sealed, or if
        there are no others."""
        segments = await self._disk.do(self._spool.sealed)
        if segments and not seal:
            return segments
        await self._disk.do(self._spool.seal)
        return await self._disk.do(self._spool.sealed)

    async def close(self) -> None:
        """What is left stays for whoever takes the folder over."""
        in_use = 0 if self.open_calls is None else self.open_calls.in_use
        if self.open_calls is not None:
            self.open_calls.close()
        with suppress(OSError):
            await self._disk.do(self._spool.sync)
        await self._disk.do(self._spool.close, remove=not in_use)

    def _append(self, batch: Waiting) -> None:
        self._spool.append(b"".join(line_of(record) for record, _ in batch))

    def _free_all(self, batch: Waiting) -> None:
        for _, slot in batch:
            self._free(slot)

    def _free(self, slot: int | None) -> None:
        if self.open_calls is not None and slot is not None:
            self.open_calls.free(slot)

    def _failed(self, error: OSError) -> None:
        self._metrics.spool_failures.inc()
        self._trouble.say("the disk takes no usage records, they wait in memory", error)


def _open_calls(folder: Path, metrics: UsageMetrics) -> OpenCalls | None:
    """None where the disk has no room: then a worker's death loses what it was serving."""
    try:
        return OpenCalls(folder)
    except OSError as error:
        metrics.spool_failures.inc()
        log.error("no room for what running requests use, a crash would lose it: %s", error.strerror)
        return None
