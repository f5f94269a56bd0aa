"""The tokens used today and this month, from the ledger, for a backend that does not know them."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.usage.query import UsageQuery
from loragate.gateway.limits.operations import SubjectUsage, WindowTotal
from loragate.gateway.limits.subject import Subject
from loragate.gateway.limits.windows import day_number, month_number, start_of_day, start_of_month

log = logging.getLogger(__name__)


class UsageTotals(Protocol):
    """Called rarely: for a tenant's first request, and when a backend has lost its state."""

    async def fetch(self, tenant_id: str, subjects: Sequence[Subject], now: float) -> list[SubjectUsage]:
        """Return the totals of each subject that has a limit per day or month."""


class LedgerTotals:
    """Totals of settled usage, which may be seconds old."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def fetch(self, tenant_id: str, subjects: Sequence[Subject], now: float) -> list[SubjectUsage]:
        found = []
        for subject in subjects:
            day = month = None
            if "day" in subject.limits:
                day = WindowTotal(day_number(now), await self._since(tenant_id, subject, start_of_day(now), now))
            if "month" in subject.limits:
                month = WindowTotal(month_number(now), await self._since(tenant_id, subject, start_of_month(now), now))
            if day or month:
                found.append(SubjectUsage(subject.name, day=day, month=month))
        return found

    async def _since(self, tenant_id: str, subject: Subject, start: datetime, now: float) -> int:
        query = UsageQuery(start, start_of_day(now) + timedelta(days=1), only=subject.usage, batches=False)
        try:
            async with self._store.tenant(tenant_id) as scope:
                totals = await scope.usage.totals(query)
        except StoreError as error:
            log.warning("the usage of %s is unknown for now and counts as zero: %s", tenant_id, error)
            return 0
        return totals.limited_tokens
