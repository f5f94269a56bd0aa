"""Settlement of segments, a live worker's own and those of dead workers."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.limits.operations import LeaseRecord
from loragate.gateway.metering.log_once import LogOnce
from loragate.gateway.metering.metrics import UsageMetrics
from loragate.gateway.metering.record_format import decode_records
from loragate.gateway.metering.recovery import DeadWorker, lock_dead_workers
from loragate.gateway.metering.settler import Settler
from loragate.gateway.metering.writer import Disk

log = logging.getLogger(__name__)

_KEPT = ".kept"  # suffix of a segment that an operator should look at


SettleLease = Callable[[str, LeaseRecord, int], Awaitable[None]]
"""Settles a tenant's lease on its limits to the tokens that were computed."""


class SegmentSettler:
    """Removes a file once the database has all of it. All methods raise StoreError and OSError."""

    def __init__(self, settler: Settler, disk: Disk, metrics: UsageMetrics, problem: LogOnce) -> None:
        self._settler = settler
        self._disk = disk
        self._metrics = metrics
        self._problem = problem

    async def settle(self, segments: Sequence[Path]) -> int:
        """Return how many segments the database rejects. They do not delay the others and are tried again later."""
        rejected = 0
        for segment in segments:
            try:
                await self._settle(segment)
            except (StoreError, OSError):
                raise
            except Exception as error:
                rejected += 1
                self._metrics.settle_failures.inc()
                self._problem.report("the database rejects usage records; they wait on the disk", error)
        return rejected

    async def take_over(
        self, usage_folder: Path, own: Path, priced: Callable[[UsageRecord], UsageRecord], settle_lease: SettleLease
    ) -> None:
        """Settle what dead workers left behind, in the ledger and then in the limits."""
        dead = await self._disk.run(lock_dead_workers, usage_folder, own)
        try:
            for worker in dead:
                await self._take_over(worker, priced, settle_lease)
        finally:
            for worker in dead:
                worker.release()

    async def _settle(self, segment: Path) -> None:
        lines = await self._disk.run(lambda: decode_records(segment.read_bytes()))
        accepted = await self._settler.settle(lines.records)
        if accepted and not lines.damaged:
            await self._disk.run(segment.unlink)
            return
        self._metrics.damaged.inc(lines.damaged)
        kept = segment.with_name(segment.name + _KEPT)
        await self._disk.run(segment.rename, kept)
        log.error("usage that is unreadable (%d lines) or was rejected is kept in %s", lines.damaged, kept)

    async def _take_over(
        self, worker: DeadWorker, priced: Callable[[UsageRecord], UsageRecord], settle_lease: SettleLease
    ) -> None:
        """Settle ended requests first: once the database has their ids, it ignores their live counters."""
        if await self.settle(await self._disk.run(worker.segments)):
            return
        interrupted = await self._disk.run(worker.interrupted_requests)
        await self._settler.settle([priced(request.record) for request in interrupted])
        for request in interrupted:
            if request.lease is not None:
                await settle_lease(request.record.tenant_id, request.lease, request.computed_tokens)
        await self._disk.run(worker.remove)
        if interrupted:
            self._metrics.crashed.inc(len(interrupted))
            log.warning(
                "%d requests were interrupted by the death of their worker; the tokens delivered by then are billed",
                len(interrupted),
            )
