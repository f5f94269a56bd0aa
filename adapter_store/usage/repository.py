"""The repository of usage: one tenant's, or all tenants'."""

from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.page import Page, cut_page
from loragate.adapter_store.usage.query import UsageQuery, UsageRow, UsageSums, sums_of
from loragate.adapter_store.usage.service_quality import Service, ServiceQuery
from loragate.adapter_store.usage.target_usage import AliasTargetQuery, AliasTargetUsage

MAX_ROWS = 1000


class UsageRepository:
    """Part of a TenantScope, where every method sees that tenant's usage only, and of an AdminScope.

    One statement each, over sums: what it costs grows with hours and adapters, not with requests (but for `targets` and
    `service`).
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def rows(self, query: UsageQuery, *, after: str | None = None, limit: int = 100) -> Page[UsageRow]:
        """Return rows, the latest hour or day first; `after` is the cursor of the last row seen. Raise Invalid."""
        assert 1 <= limit <= MAX_ROWS
        found = (await self._session.execute(query.rows(after, limit + 1))).all()
        return cut_page([query.row_of(row) for row in found], limit)

    async def totals(self, query: UsageQuery) -> UsageSums:
        """Return the sums over all rows of all pages."""
        return sums_of((await self._session.execute(query.totals())).one())

    async def service(self, query: ServiceQuery) -> Service:
        """Return how the tenant was served, by its latest requests, at constant cost. Needs a tenant's scope."""
        return await query.service(self._session)

    async def targets(self, query: AliasTargetQuery) -> tuple[AliasTargetUsage, ...]:
        """Return the usage of an alias's targets, from the ledger: the cost grows with the requests in the period."""
        return await query.targets(self._session)
