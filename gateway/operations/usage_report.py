"""Usage reports, one page at a time or as one table."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from loragate.adapter_store.database.page import Page
from loragate.adapter_store.timestamps import rfc3339
from loragate.adapter_store.usage.query import UsageQuery, UsageRow
from loragate.adapter_store.usage.repository import MAX_ROWS, UsageRepository
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.usage import UsageList, csv_lines, field_names, sum_fields, usage_fields, usage_row


@dataclass(frozen=True)
class Report:
    """A report on what the caller may see. `usage` opens it for one page at a time, so that no slow client holds a
    database connection. `currency` is the currency of the amounts, None if nothing has a price.
    """

    query: UsageQuery
    usage: Callable[[], AbstractAsyncContextManager[UsageRepository]]
    currency: str | None

    async def page(self, after: str | None, limit: int) -> UsageList:
        """Return a page of rows, with the totals of all pages. Raise Invalid for a bad `after`."""
        async with self.usage() as usage:
            page = await usage.rows(self.query, after=after, limit=limit)
            totals = await usage.totals(self.query)
        rows = [usage_row(self.query, row, self.currency) for row in page]
        return {
            **list_object(rows, has_more=page.has_more),
            "start": rfc3339(self.query.start),
            "end": rfc3339(self.query.end),
            "totals": sum_fields(totals, self.currency),
        }

    async def table(self, first: Page[UsageRow]) -> AsyncIterator[bytes]:
        """Yield all rows as CSV, after a header line; `first` is the first page."""
        yield csv_lines([field_names(self.query)])
        page = first
        while True:
            yield csv_lines(usage_fields(self.query, row, self.currency).values() for row in page)
            if not page.has_more:
                return
            page = await self.rows(page.items[-1].cursor)

    async def rows(self, after: str | None = None) -> Page[UsageRow]:
        """Return a page of the maximum length."""
        async with self.usage() as usage:
            return await usage.rows(self.query, after=after, limit=MAX_ROWS)
