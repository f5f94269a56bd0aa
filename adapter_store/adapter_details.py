"""Adapters with all that is told of them, in one query however many there are."""

from datetime import datetime
from functools import cache
from typing import Any

import orjson
from sqlalchemy import Select, and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import PUBLISHED, Adapter, AdapterStatus, AliasTarget
from loragate.adapter_store.adapter_filter import AdapterFilter
from loragate.adapter_store.cursor import newest_of, position_of
from loragate.adapter_store.description import Description
from loragate.adapter_store.json_lists import json_lists
from loragate.adapter_store.page import Page, checked_limit, cut_page
from loragate.adapter_store.tables import AdapterRow, AdapterVersionRow, AliasTargetRow
from loragate.adapter_store.wide_search import search_widely


async def adapter_page(
    session: AsyncSession, wanted: AdapterFilter, *, within: str | None = None, after: str | None, limit: int
) -> Page[Adapter]:
    """Newest first; of the session's scope, or of one tenant `within` it. Raises Invalid for what is no cursor of this
    scope."""
    text = wanted.widely_sought(session)
    if text is not None:
        checked_limit(limit)
        position = None if after is None else await position_of(session, AdapterRow, after)
        most = limit + 1
        rows = await search_widely(session, _detailed(), wanted, text, within=within, after=position, most=most)
        return cut_page([_adapter_of(row) for row in rows], limit)
    await wanted.prepare(session)
    query = wanted.applied(_detailed())
    if within is not None:
        query = query.where(AdapterRow.tenant_id == within)
    page = await newest_of(session, AdapterRow, query, after=after, limit=limit, order=wanted.order)
    return Page(tuple(_adapter_of(row) for row in page), page.has_more)


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
    """Of a page's fifty: the columns are unpacked, not asked for by name."""
    (
        adapter_id,
        tenant_id,
        name,
        tags,
        text,
        limits,
        keep,
        created_at,
        updated_at,
        disabled_at,
        deleted_at,
        latest_version,
        arms,
    ) = row
    targets: dict[str, list[AliasTarget]] = {}
    routed: dict[int, str] = {}
    for alias, version, weight, digest in sorted(orjson.loads(arms)) if arms else ():
        targets.setdefault(alias, []).append(AliasTarget(version, weight))
        routed[version] = digest
    return Adapter(
        id=adapter_id,
        tenant_id=tenant_id,
        name=name,
        status=_status_of(disabled_at, deleted_at),
        latest_version=latest_version,
        aliases={alias: tuple(arms) for alias, arms in targets.items()},
        routed=routed,
        limits=limits,
        description=Description(tags, text),
        keep=keep,
        created_at=created_at,
        updated_at=updated_at,
        deleted_at=deleted_at,
    )


def _status_of(disabled_at: datetime | None, deleted_at: datetime | None) -> AdapterStatus:
    if deleted_at is not None:
        return AdapterStatus.DELETED
    return AdapterStatus.READY if disabled_at is None else AdapterStatus.DISABLED
