"""Answers to questions about usage, a page at a time or as one long table."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from loragate.adapter_store.database.page import Page
from loragate.adapter_store.usage.query import UsageQuery, UsageRow
from loragate.adapter_store.usage.repository import MAX_ROWS, UsageRepository
from loragate.gateway.objects.common import list_object, rfc3339
from loragate.gateway.objects.csv_table import csv_lines
from loragate.gateway.objects.usage import field_names, sum_fields, usage_fields


@dataclass(frozen=True)
class Report:
    """`usage` opens what may be seen, for one page at a time: no slow reader holds a connection.

    `currency` is that of the amounts, None where nothing has a price.
    """

    query: UsageQuery
    usage: Callable[[], AbstractAsyncContextManager[UsageRepository]]
    currency: str | None

    async def page(self, after: str | None, limit: int) -> dict[str, Any]:
        """A list of rows, and the totals of all pages. Raises Invalid for `after`."""
        async with self.usage() as usage:
            page = await usage.rows(self.query, after=after, limit=limit)
            totals = await usage.totals(self.query)
        rows = [{"object": "usage", "id": row.cursor, **self._fields(row)} for row in page]
        return {
            **list_object(rows, has_more=page.has_more),
            "start": rfc3339(self.query.start),
            "end": rfc3339(self.query.end),
            "totals": sum_fields(totals, self.currency),
        }

    async def table(self, first: Page[UsageRow]) -> AsyncIterator[bytes]:
        """All rows as CSV under a line of names, `first` being the first page."""
        yield csv_lines([field_names(self.query)])
        page = first
        while True:
            yield csv_lines(self._fields(row).values() for row in page)
            if not page.has_more:
                return
            page = await self.rows(page.items[-1].cursor)

    async def rows(self, after: str | None = None) -> Page[UsageRow]:
        """A page as long as they get."""
        async with self.usage() as usage:
            return await usage.rows(self.query, after=after, limit=MAX_ROWS)

    def _fields(self, row: UsageRow) -> dict[str, Any]:
        return usage_fields(self.query, row, self.currency)
