"""The ledger: records what requests used, exactly once, first on this machine's disk, within seconds in the database.

    `Meter`, with a slot in `LiveCounters` while the request runs
      │ at its end, the record goes to memory at once
      ▼
    `RecordWriter` writes lines to a segment of the `Spool` and frees the slot; fsync twice a second
      ▼
    `SegmentSettler` writes segments to the database and removes each after the commit that contains it

If a process dies in between, the process that finds the file repeats the step, and the database recognizes each record
by its id. While the database is unavailable, segments wait on the disk; while the disk is full, records wait in memory.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.usage.record import BATCH, UsageRecord
from loragate.gateway.config.prices import _PRICE_DIGITS, Price
from loragate.gateway.limits.operations import LeaseRecord
from loragate.gateway.metering.live_counters import Meter
from loragate.gateway.metering.log_once import LogOnce
from loragate.gateway.metering.metrics import UsageMetrics
from loragate.gateway.metering.segments import SegmentSettler, SettleLease
from loragate.gateway.metering.settler import Settler
from loragate.gateway.metering.writer import Disk, RecordWriter
from loragate.gateway.resilience.timeouts import wait_for_event


@dataclass(frozen=True, slots=True)
class _Rates:
    """The cost of one token of each kind in 10⁻¹⁰ of the currency's unit."""

    prompt: int
    cached: int
    completion: int
    computed: bool  # tokens are priced that were computed, not those that were delivered

    @classmethod
    def of(cls, price: Price) -> "_Rates":
        cached = price.prompt if price.cached is None else price.cached
        prompt, cached_, completion = (
            int(each.scaleb(_PRICE_DIGITS)) for each in (price.prompt, cached, price.completion)
        )
        return cls(prompt, cached_, completion, price.basis == "computed")

    def amount(self, record: UsageRecord) -> int:
        cached = record.cached_tokens
        delivered = record.prompt_tokens - cached, record.completion_tokens
        prompt, completion = record.computed if self.computed else delivered
        return prompt * self.prompt + cached * self.cached + completion * self.completion


class Prices:
    """The most specific price applies: for the tenant's adapter, the tenant, everything. Lines of batches cost
    `batch_factor` times as much as requests."""

    def __init__(self, prices: Iterable[Price] = (), batch_factor: Decimal = Decimal(1)) -> None:
        self._rates = {(price.tenant, price.adapter): _Rates.of(price) for price in prices}
        self._batch_factor = batch_factor

    def amount(self, record: UsageRecord) -> int | None:
        """Return the exact cost in 10⁻¹⁰ of the currency's unit; None without a price."""
        for names in ((record.tenant_id, record.adapter), (record.tenant_id, None), (None, None)):
            rates = self._rates.get(names)
            if rates is not None:
                amount = rates.amount(record)
                return int(amount * self._batch_factor) if record.endpoint.startswith(BATCH) else amount
        return None

    def priced(self, record: UsageRecord) -> UsageRecord:
        """Return the record with its cost."""
        amount = self.amount(record)
        return record if amount is None else replace(record, amount=amount)


log = logging.getLogger(__name__)

SETTLE_SECONDS = 1.0
_GATHER_SECONDS = 0.02  # requests that end within it are written together; until then their slots hold them
_SYNC_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 5.0  # for the database, when this process stops


class Ledger:
    """One per process."""

    def __init__(self, store: Store, usage_folder: Path, prices: Prices, metrics: UsageMetrics) -> None:
        """Raise OSError if the folder cannot be created."""
        self._usage_folder = usage_folder
        self._prices = prices
        self._metrics = metrics
        self._disk = Disk()
        self._problem = LogOnce(log, resolved="usage is recorded and settled again")
        self._settler = Settler(store, metrics)
        self._writer = RecordWriter(usage_folder, self._disk, metrics, self._problem)
        self._segments = SegmentSettler(self._settler, self._disk, metrics, self._problem)
        self._settling = asyncio.Lock()
        self._database_reached = True  # when it was last tried
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.settle_lease: SettleLease = _keep_lease

    def start(self) -> None:
        """Start writing, syncing and settling."""
        loops = {
            "usage-write": self._run_write_loop,
            "usage-sync": self._run_sync_loop,
            "usage-settle": self._run_settle_loop,
        }
        self._tasks = [asyncio.create_task(loop(), name=name) for name, loop in loops.items()]

    async def close(self) -> None:
        """Write what is left to the disk, and to the database if it responds soon."""
        self._stop.set()
        self._wake.set()
        await asyncio.gather(*self._tasks)
        await self._writer.write()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._try_to_settle()
        await self._writer.close()
        self._disk.close()

    def open(self, record: UsageRecord, lease: LeaseRecord | None = None) -> Meter:
        """Return the meter of a request that starts with this lease; its tokens and timings follow."""
        return Meter(record, self._writer.live_counters, self.record, lease)

    def record(self, record: UsageRecord, slot: int | None = None) -> None:
        """Record a request that has ended and had `slot`. Return at once; anything slow happens later."""
        self._writer.put(self._prices.priced(record), slot)
        self._wake.set()

    async def flush(self) -> None:
        """Make everything recorded so far survive a power cut. Raise OSError."""
        if not await self._writer.write():
            raise OSError("usage records cannot be written to the disk")
        await self._writer.sync()

    async def settle(self) -> int:
        """Write everything that is on the disk to the database; return how many segments the database rejects.

        Raise StoreError and OSError.
        """
        async with self._settling:
            # While the database is unavailable, one segment grows instead of a new one starting every second.
            segments = await self._writer.sealed(seal=self._database_reached)
            self._metrics.segments.set(len(segments))
            self._database_reached = False
            rejected = await self._segments.settle(segments)
            self._database_reached = True
            self._metrics.segments.set(rejected)
            await self._segments.take_over(
                self._usage_folder, self._writer.folder, self._prices.priced, self.settle_lease
            )
            await self._writer.bypass_disk(self._settler.settle)
            return rejected

    async def _run_write_loop(self) -> None:
        while not self._stop.is_set():
            await self._wake.wait()
            await self._pause(_GATHER_SECONDS)
            self._wake.clear()
            if not await self._writer.write():
                await self._pause(_RETRY_SECONDS)
                self._wake.set()

    async def _run_sync_loop(self) -> None:
        while not self._stop.is_set():
            await self._pause(_SYNC_SECONDS)
            await self._writer.sync()

    async def _run_settle_loop(self) -> None:
        while not self._stop.is_set():
            await self._try_to_settle()
            await self._pause(SETTLE_SECONDS)

    async def _try_to_settle(self) -> None:
        try:
            if not await self.settle() and self._writer.idle:
                self._problem.resolved()
        except (StoreError, OSError) as error:
            self._metrics.settle_failures.inc()
            self._problem.report("usage records cannot be written to the database; they wait on the disk", error)
        except Exception:
            self._metrics.settle_failures.inc()
            log.exception("settling usage failed")

    async def _pause(self, seconds: float) -> None:
        await wait_for_event(self._stop, seconds)


async def _keep_lease(tenant_id: str, lease: LeaseRecord, tokens: int) -> None:
    """Leave a lease to its expiry."""
