"""Reading of adapters, each from its own row."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, literal_column, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import PUBLISHED, Adapter, AdapterStatus
from loragate.adapter_store.adapters.description import Description
from loragate.adapter_store.adapters.route_summary import decode_routes
from loragate.adapter_store.database.scoped_statements import TENANT_PARAM, scoped
from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.tables.adapters import AdapterRow

_ADAPTER = AdapterRow.__table__.c
_SUMMARY = (
    "id",
    "tenant_id",
    "name",
    "tags",
    "description",
    "limits",
    "placement",
    "created_at",
    "updated_at",
    "disabled_at",
    "deleted_at",
    "latest_version",
    "routes",
)


def summary_columns(adapter: Any, **others: ColumnElement[Any]) -> tuple[ColumnElement[Any], ...]:
    """Return the columns that `adapters_of` reads; `others` replace columns by equal ones."""
    return tuple(others.get(name, adapter[name]).label(name) for name in _SUMMARY)


def published(status: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition that a version's status is a published one, in literals, which need no binding."""
    return status.in_([literal_column(f"'{each}'") for each in PUBLISHED])


@lru_cache
def _one(by: str, *, of_one_tenant: bool) -> Select[Any]:
    query = select(*summary_columns(_ADAPTER)).where(_ADAPTER[by] == bindparam("key"))
    if of_one_tenant:
        query = query.where(_ADAPTER.tenant_id == TENANT_PARAM)
    if by == "name":
        query = query.where(_ADAPTER.deleted_at.is_(None), _ADAPTER.published_at.is_not(None))
    return scoped(query) if of_one_tenant else query


async def adapter_of(session: AsyncSession, adapter_id: str) -> Adapter:
    """Return an adapter that exists."""
    owner = tenant_of(session)
    query = _one("id", of_one_tenant=owner is not None)
    [adapter] = adapters_of((await session.execute(query, {"key": adapter_id, TENANT_PARAM.key: owner})).all())
    return adapter


async def adapter_named(session: AsyncSession, name: str) -> Adapter | None:
    """Return the scope's published adapter of this name that is not deleted, or None."""
    rows = await session.execute(_one("name", of_one_tenant=True), {"key": name, TENANT_PARAM.key: tenant_of(session)})
    return next(iter(adapters_of(rows.all())), None)


def adapters_of(rows: Sequence[Any]) -> list[Adapter]:
    """Return the adapters in rows of `summary_columns`."""
    return [_adapter_of(*row) for row in rows]


def _adapter_of(
    adapter_id: str,
    tenant_id: str,
    name: str,
    tags: tuple[str, ...],
    text: str,
    limits: Any,
    placement: str | None,
    created_at: datetime,
    updated_at: datetime,
    disabled_at: datetime | None,
    deleted_at: datetime | None,
    latest_version: int | None,
    routes: str | None,
) -> Adapter:
    aliases, routed = decode_routes(routes)
    return Adapter(
        id=adapter_id,
        tenant_id=tenant_id,
        name=name,
        status=_status_of(disabled_at, deleted_at),
        latest_version=latest_version,
        aliases=aliases,
        routed=routed,
        limits=limits,
        description=Description(tags, text),
        placement=placement,
        created_at=created_at,
        updated_at=updated_at,
        deleted_at=deleted_at,
    )


def _status_of(disabled_at: datetime | None, deleted_at: datetime | None) -> AdapterStatus:
    if deleted_at is not None:
        return AdapterStatus.DELETED
    return AdapterStatus.READY if disabled_at is None else AdapterStatus.DISABLED
