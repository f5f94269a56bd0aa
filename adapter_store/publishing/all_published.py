"""Published adapters of all tenants, for the operator."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import and_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import Adapter, VersionStatus
from loragate.adapter_store.adapters.filter import EVERY_ADAPTER, AdapterFilter
from loragate.adapter_store.adapters.search import adapter_page
from loragate.adapter_store.adapters.versions import is_deferred
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.imports.lease import WaitingImport, next_waiting
from loragate.adapter_store.names import could_be_id
from loragate.adapter_store.publishing.deferred import Due, next_due
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow
from loragate.adapter_store.timestamps import utc_now

_PAIRS = 500  # in one query


@dataclass(frozen=True, order=True, slots=True)
class VersionName:
    """A version by its adapter's name."""

    name: str
    version: int


Content = tuple[str, str]
"""A tenant's id and a digest."""


class PublishedAdapters:
    """Part of an AdminScope."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list(
        self,
        wanted: AdapterFilter = EVERY_ADAPTER,
        *,
        tenant_id: str | None = None,
        after: str | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> Page[Adapter]:
        """Return all tenants' adapters, or one tenant's, newest first; `after` is the id of the last one seen."""
        seen = tenant_id is None or (could_be_id(tenant_id) and tenant_of(self._session) in (None, tenant_id))
        if not seen:
            return Page((), has_more=False)
        return await adapter_page(self._session, wanted, within=tenant_id, after=after, limit=limit)

    async def names(self, contents: Iterable[Content]) -> dict[Content, tuple[VersionName, ...]]:
        """Return the names of these contents, sorted; contents without a name are left out."""
        names: dict[Content, list[VersionName]] = defaultdict(list)
        version, adapter = AdapterVersionRow, AdapterRow
        same = and_(adapter.tenant_id == version.tenant_id, adapter.id == version.adapter_id)
        wanted = list(set(contents))
        for start in range(0, len(wanted), _PAIRS):
            pairs = wanted[start : start + _PAIRS]
            query = (
                select(version.tenant_id, version.digest, adapter.name, version.version)
                .join(adapter, same)
                .where(version.deleted_at.is_(None), tuple_(version.tenant_id, version.digest).in_(pairs))
            )
            for tenant_id, digest, name, number in await self._session.execute(query):
                names[tenant_id, digest].append(VersionName(name, number))
        return {content: tuple(sorted(found)) for content, found in names.items()}

    async def tenants_with_abandoned(self, age: timedelta) -> Sequence[str]:
        """Return the tenants with a publication that is at least that old."""
        row = AdapterVersionRow
        query = select(row.tenant_id).where(
            row.status == VersionStatus.VERIFYING.value, row.deleted_at.is_(None), row.created_at < utc_now() - age
        )
        query = query.where(~is_deferred())
        return (await self._session.scalars(query.distinct())).all()

    async def next_due(self) -> Due | None:
        """Return a version that waits for an engine and may be tried now, or None."""
        return await next_due(self._session)

    async def next_import(self) -> WaitingImport | None:
        """Return an import that no process works on any more, or None."""
        return await next_waiting(self._session)
