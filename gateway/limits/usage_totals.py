"""Sums of days and months that no book knows any more, from the ledger."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.adapter_store.usage.query import UsageQuery
from loragate.gateway.limits.calendar import day_of, month_of, start_of_day, start_of_month
from loragate.gateway.limits.subject import Subject

log = logging.getLogger(__name__)


class Spent(Protocol):
    """Asked seldom: when a tenant is first seen, and after all was lost."""

    async def sums(self, tenant_id: str, subjects: Sequence[Subject], now: float) -> list[dict[str, Any]]:
        """For each subject whose days or months are limited, what it has used of them, as `Book.restore` reads it."""


class LedgerSums:
    """What was settled; up to seconds old."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def sums(self, tenant_id: str, subjects: Sequence[Subject], now: float) -> list[dict[str, Any]]:
        found = []
        for subject in subjects:
            sums: dict[str, Any] = {}
            if "day" in subject.limits:
                sums |= {"d": day_of(now), "ds": await self._since(tenant_id, subject, start_of_day(now), now)}
            if "month" in subject.limits:
                sums |= {"m": month_of(now), "ms": await self._since(tenant_id, subject, start_of_month(now), now)}
            if sums:
                found.append({"name": subject.name, **sums})
        return found

    async def _since(self, tenant_id: str, subject: Subject, start: datetime, now: float) -> int:
        query = UsageQuery(start, start_of_day(now) + timedelta(days=1), only=subject.usage)
        try:
            async with self._store.tenant(tenant_id) as scope:
                totals = await scope.usage.totals(query)
        except StoreError as error:
            log.warning("the usage of %s is not known now and counts as none: %s", tenant_id, error)
            return 0
        return totals.prompt_tokens + totals.completion_tokens
