"""From files to the database, a living worker's or a dead one's."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.metering.disk import Disk
from loragate.gateway.metering.log_once import Trouble
from loragate.gateway.metering.metrics import UsageMetrics
from loragate.gateway.metering.record_format import read_lines
from loragate.gateway.metering.recovery import DeadWorker, dead_workers
from loragate.gateway.metering.settler import Settler

log = logging.getLogger(__name__)

_KEPT = ".kept"  # behind the name of a segment that somebody should look at


class SegmentSettler:
    """A file goes once the database has all of it. All methods raise StoreError and OSError."""

    def __init__(self, settler: Settler, disk: Disk, metrics: UsageMetrics, trouble: Trouble) -> None:
        self._settler = settler
        self._disk = disk
        self._metrics = metrics
        self._trouble = trouble

    async def settle(self, segments: Sequence[Path]) -> int:
        """Returns how many the database refuses whole. They do not hold up the others, and are tried again later."""
        refused = 0
        for segment in segments:
            try:
                await self._settle(segment)
            except (StoreError, OSError):
                raise
            except Exception as error:
                refused += 1
                self._metrics.settle_failures.inc()
                self._trouble.say("the database refuses usage records, they wait on the disk", error)
        return refused

    async def take_over(self, usage_folder: Path, own: Path, priced: Callable[[UsageRecord], UsageRecord]) -> None:
        """Whatever dead workers left behind."""
        dead = await self._disk.do(dead_workers, usage_folder, own)
        try:
            for worker in dead:
                await self._take_over(worker, priced)
        finally:
            for worker in dead:
                worker.release()

    async def _settle(self, segment: Path) -> None:
        lines = await self._disk.do(lambda: read_lines(segment.read_bytes()))
        accepted = await self._settler.settle(lines.records)
        if accepted and not lines.damaged:
            await self._disk.do(segment.unlink)
            return
        self._metrics.damaged.inc(lines.damaged)
        kept = segment.with_name(segment.name + _KEPT)
        await self._disk.do(segment.rename, kept)
        log.error("usage that cannot be read (%d lines) or was refused is kept in %s", lines.damaged, kept)

    async def _take_over(self, worker: DeadWorker, priced: Callable[[UsageRecord], UsageRecord]) -> None:
        """Ended requests first: once the database knows their ids, what they had been told before is ignored."""
        if await self.settle(await self._disk.do(worker.segments)):
            return
        cut = [priced(record) for record in await self._disk.do(worker.left_open)]
        await self._settler.settle(cut)
        await self._disk.do(worker.remove)
        if cut:
            self._metrics.crashed.inc(len(cut))
            log.warning("%d requests were cut by the death of their worker; they are billed as told by then", len(cut))
