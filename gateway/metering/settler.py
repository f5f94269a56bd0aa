"""Settlement of records in the database."""

import logging
from collections.abc import Iterator, Sequence

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.metering.metrics import UsageMetrics

log = logging.getLogger(__name__)

_BATCH = 500  # records of one transaction


class Settler:
    """Writes records to the database; writing a record again changes nothing."""

    def __init__(self, store: Store, metrics: UsageMetrics) -> None:
        self._store = store
        self._metrics = metrics

    async def settle(self, records: Sequence[UsageRecord]) -> bool:
        """Return False if the database rejects some of the records for good; it has the others.

        Raise StoreError while the database is unavailable, and the database's error if it rejects every single record.
        """
        rejected = 0
        for batch in _batches(records):
            try:
                await self._add(batch)
            except StoreError:
                raise
            except Exception as error:
                rejected += await self._one_by_one(batch, error)
        return rejected == 0

    async def _one_by_one(self, batch: Sequence[UsageRecord], error: Exception) -> int:
        """Write records singly, so that one does not block the others; if all are rejected, the records are not at
        fault."""
        rejected = []
        for record in batch:
            try:
                await self._add([record])
            except StoreError:
                raise
            except Exception:
                rejected.append(record.id)
        if len(rejected) == len(batch):
            raise error
        self._metrics.rejected.inc(len(rejected))
        log.error("the database rejects the usage records %s: %s", ", ".join(rejected), type(error).__name__)
        return len(rejected)

    async def _add(self, batch: Sequence[UsageRecord]) -> None:
        async with self._store.admin(write=True) as admin:
            added = await admin.settlement.settle(batch)
        self._metrics.settled.inc(added)


def _batches(records: Sequence[UsageRecord]) -> Iterator[Sequence[UsageRecord]]:
    for start in range(0, len(records), _BATCH):
        yield records[start : start + _BATCH]
