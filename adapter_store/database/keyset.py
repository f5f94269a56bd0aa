"""Keyset pagination, newest first, for rows that have `created_at` and `id`."""

from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from loragate.adapter_store.database.page import Page, checked_limit, cut_page
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.names import could_be_id, could_be_key
from loragate.adapter_store.tables.adapters import AdapterImportRow, AdapterRow
from loragate.adapter_store.tables.admin_keys import AdminKeyRow
from loragate.adapter_store.tables.audit import AuditRow
from loragate.adapter_store.tables.batches import BatchRow
from loragate.adapter_store.tables.jobs import JobRow
from loragate.adapter_store.tables.responses import ConversationRow, StoredResponseRow
from loragate.adapter_store.tables.tenants import ApiKeyRow, TenantRow
from loragate.adapter_store.tables.training import TrainingRunRow

Order = tuple[InstrumentedAttribute[datetime], InstrumentedAttribute[str]]
Row = TypeVar(
    "Row",
    AdapterImportRow,
    AdapterRow,
    AdminKeyRow,
    ApiKeyRow,
    AuditRow,
    BatchRow,
    ConversationRow,
    JobRow,
    StoredResponseRow,
    TenantRow,
    TrainingRunRow,
)
Owned = TypeVar("Owned", BatchRow, JobRow)


async def newest_first(
    session: AsyncSession, kind: type[Row], *where: ColumnElement[bool], after: str | None, limit: int
) -> Page[Row]:
    """Return the page after the row with id `after`, which may have been deleted but must have existed.

    Raise Invalid for an `after` that never was in this scope and for a limit out of range.
    """
    page = await newest_of(session, kind, select(kind).where(*where), after=after, limit=limit)
    return Page(tuple(row[0] for row in page), page.has_more)


async def newest_of_all(
    session: AsyncSession,
    kind: type[Owned],
    *,
    tenant_id: str | None,
    status: str | None,
    after: str | None,
    limit: int,
) -> Page[Owned]:
    """Return such a page of all tenants' rows, or of one tenant's, with any status or this one; an administrator of
    another tenant sees nothing of it."""
    where: list[ColumnElement[bool]] = []
    if tenant_id is not None:
        if not could_be_id(tenant_id) or tenant_of(session) not in (None, tenant_id):
            return Page((), has_more=False)
        where.append(kind.tenant_id == tenant_id)
    if status is not None:
        where.append(kind.status == status)
    return await newest_first(session, kind, *where, after=after, limit=limit)


async def newest_of(
    session: AsyncSession,
    kind: type[Row],
    query: Select[Any],
    *,
    after: str | None,
    limit: int,
    order: Order | None = None,
) -> Page[Any]:
    """Return the same page of `query`. `order` are columns with the values of `created_at` and `id`."""
    checked_limit(limit)
    made, named = order or (kind.created_at, kind.id)
    query = query.order_by(made.desc(), named.desc())
    if after is not None:
        query = query.where(tuple_(made, named) < tuple_(*await position_of(session, kind, after)))
    return cut_page((await session.execute(query.limit(limit + 1))).all(), limit)


async def position_of(session: AsyncSession, kind: type[Row], row_id: str) -> tuple[datetime, str]:
    """Return the position of a row that is or was in this scope. Raise Invalid."""
    row = None
    if could_be_key(row_id):
        row = (await session.execute(select(kind.created_at, kind.id).where(kind.id == row_id))).one_or_none()
    if row is None:
        raise Invalid("`after` is not the id of an item of this list.", param="after")
    return row.created_at, row.id
