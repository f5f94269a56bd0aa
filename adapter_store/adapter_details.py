"""Adapters with all that is told of them, in one query however many there are."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Select, and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import PUBLISHED, Adapter, AdapterStatus, AliasTarget
from loragate.adapter_store.adapter_filter import AdapterFilter
from loragate.adapter_store.cursor import newest_of, position_of
from loragate.adapter_store.description import Description
from loragate.adapter_store.json_lists import json_lists
from loragate.adapter_store.page import Page, checked_limit, cut_page
from loragate.adapter_store.tables import AdapterRow, AdapterVersionRow, AliasTargetRow
from loragate.adapter_store.wide_search import newest_with


async def adapter_page(
    session: AsyncSession, wanted: AdapterFilter, *where: ColumnElement[bool], after: str | None, limit: int
) -> Page[Adapter]:
    """Newest first. Raises Invalid for what is no cursor of this scope."""
    await wanted.prepare(session)
    text = wanted.widely_sought(session)
    if text is not None:
        return await _wide_page(session, text, (*wanted.in_state(), *where), after, limit)
    query = wanted.applied(_detailed(), session).where(*where)
    page = await newest_of(session, AdapterRow, query, after=after, limit=limit, order=wanted.order)
    return Page(tuple(_adapter_of(row) for row in page), page.has_more)


async def _wide_page(
    session: AsyncSession, text: str, where: Sequence[ColumnElement[bool]], after: str | None, limit: int
) -> Page[Adapter]:
    checked_limit(limit)
    position = None if after is None else await position_of(session, AdapterRow, after)
    ids = await newest_with(session, text, where, after=position, most=limit + 1)
    order = (AdapterRow.created_at.desc(), AdapterRow.id.desc())
    rows = (await session.execute(_detailed().where(AdapterRow.id.in_(ids)).order_by(*order))).all()
    return cut_page([_adapter_of(row) for row in rows], limit)


async def adapter_of(session: AsyncSession, adapter_id: str) -> Adapter:
    """One that is there."""
    return _adapter_of((await session.execute(_detailed().where(AdapterRow.id == adapter_id))).one())


@cache
def _detailed() -> Select[*tuple[Any, ...]]:
    """Reached through the adapters' own rows, so that indices that begin with a tenant serve operators too."""
    adapter, version, target = AdapterRow, AdapterVersionRow, AliasTargetRow
    latest = select(func.max(version.version)).where(
        version.tenant_id == adapter.tenant_id,
        version.adapter_id == adapter.id,
        version.deleted_at.is_(None),
        version.status.in_(PUBLISHED),
    )
    targeted = and_(
        version.tenant_id == target.tenant_id,
        version.adapter_id == target.adapter_id,
        version.version == target.version,
    )
    arms = (
        select(json_lists(target.alias, target.version, target.weight, version.digest))
        .join(version, targeted)
        .where(target.tenant_id == adapter.tenant_id, target.adapter_id == adapter.id)
    )
    columns: tuple[Any, ...] = (
        adapter.id,
        adapter.tenant_id,
        adapter.name,
        adapter.tags,
        adapter.description,
        adapter.limits,
        adapter.keep,
        adapter.created_at,
        adapter.updated_at,
        adapter.disabled_at,
        adapter.deleted_at,
        latest.correlate(adapter).scalar_subquery().label("latest_version"),
        arms.correlate(adapter).scalar_subquery().label("arms"),
    )
    return select(*columns)


def _adapter_of(row: Any) -> Adapter:
    aliases: dict[str, tuple[AliasTarget, ...]] = {}
    routed: dict[int, str] = {}
    for alias, version, weight, digest in sorted(orjson.loads(row.arms or "[]")):
        aliases[alias] = (*aliases.get(alias, ()), AliasTarget(version, weight))
        routed[version] = digest
    return Adapter(
        id=row.id,
        tenant_id=row.tenant_id,
        name=row.name,
        status=_status_of(row),
        latest_version=row.latest_version,
        aliases=aliases,
        routed=routed,
        limits=row.limits,
        description=Description(row.tags, row.description),
        keep=row.keep,
        created_at=row.created_at,
        updated_at=row.updated_at,
        deleted_at=row.deleted_at,
    )


def _status_of(row: Any) -> AdapterStatus:
    if row.deleted_at is not None:
        return AdapterStatus.DELETED
    return AdapterStatus.READY if row.disabled_at is None else AdapterStatus.DISABLED
