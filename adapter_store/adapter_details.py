"""Adapters with all that is told of them, in one query however many there are."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Select, and_, bindparam, func, literal_column, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import PUBLISHED, Adapter, AdapterStatus, AliasTarget
from loragate.adapter_store.bare_statements import OWN, own
from loragate.adapter_store.description import Description
from loragate.adapter_store.json_lists import json_lists
from loragate.adapter_store.tables import AdapterRow, AdapterVersionRow, AliasTargetRow
from loragate.adapter_store.tenancy import tenant_of

_ADAPTER = AdapterRow.__table__.c
_TOLD = (
    "id",
    "tenant_id",
    "name",
    "tags",
    "description",
    "limits",
    "keep",
    "created_at",
    "updated_at",
    "disabled_at",
    "deleted_at",
)


def told_of(adapter: Any, **others: ColumnElement[Any]) -> tuple[ColumnElement[Any], ...]:
    """Its columns that `detailed` wants, or `others` that say the same."""
    return tuple(others.get(name, adapter[name]).label(name) for name in _TOLD)


def detailed(adapter: Any, *, of_one_tenant: bool) -> Select[Any]:
    """What `adapters_of` reads, where `adapter` are the columns of adapters, or of a subquery that has `told_of` them.
    They may be all tenants', or OWN's."""
    owner = OWN if of_one_tenant else adapter.tenant_id
    version, target = AdapterVersionRow.__table__.c, AliasTargetRow.__table__.c
    latest = select(func.max(version.version)).where(
        version.tenant_id == owner,
        version.adapter_id == adapter.id,
        version.deleted_at.is_(None),
        published(version.status),
    )
    targeted = and_(version.adapter_id == target.adapter_id, version.version == target.version)
    arms = (
        select(json_lists(target.alias, target.version, target.weight, version.digest))
        .join_from(AliasTargetRow.__table__, AdapterVersionRow.__table__, and_(version.tenant_id == owner, targeted))
        .where(target.tenant_id == owner, target.adapter_id == adapter.id)
    )
    return select(*told_of(adapter), latest.scalar_subquery(), arms.scalar_subquery())


def published(status: ColumnElement[str]) -> ColumnElement[bool]:
    """Of a version's status; written out, because bound values would have to be put in anew each time."""
    return status.in_([literal_column(f"'{each}'") for each in PUBLISHED])


@lru_cache
def _one(by: str, *, of_one_tenant: bool) -> Select[Any]:
    query = detailed(_ADAPTER, of_one_tenant=of_one_tenant).where(_ADAPTER[by] == bindparam("key"))
    if of_one_tenant:
        query = query.where(_ADAPTER.tenant_id == OWN)
    if by == "name":
        query = query.where(_ADAPTER.deleted_at.is_(None), _ADAPTER.published_at.is_not(None))
    return own(query) if of_one_tenant else query


async def adapter_of(session: AsyncSession, adapter_id: str) -> Adapter:
    """One that is there."""
    owner = tenant_of(session)
    query = _one("id", of_one_tenant=owner is not None)
    [adapter] = adapters_of((await session.execute(query, {"key": adapter_id, OWN.key: owner})).all())
    return adapter


async def adapter_named(session: AsyncSession, name: str) -> Adapter | None:
    """The living, published one of the scope's tenant."""
    rows = await session.execute(_one("name", of_one_tenant=True), {"key": name, OWN.key: tenant_of(session)})
    return next(iter(adapters_of(rows.all())), None)


def adapters_of(rows: Sequence[Any]) -> list[Adapter]:
    """Of `detailed`."""
    return [_adapter_of(*row) for row in rows]


def _adapter_of(
    adapter_id: str,
    tenant_id: str,
    name: str,
    tags: tuple[str, ...],
    text: str,
    limits: Any,
    keep: str | None,
    created_at: datetime,
    updated_at: datetime,
    disabled_at: datetime | None,
    deleted_at: datetime | None,
    latest_version: int | None,
    arms: str | None,
) -> Adapter:
    targets: dict[str, tuple[AliasTarget, ...]] = {}
    routed: dict[int, str] = {}
    for alias, version, weight, digest in sorted(orjson.loads(arms)) if arms else ():
        targets[alias] = (*targets.get(alias, ()), AliasTarget(version, weight))
        routed[version] = digest
    return Adapter(
        id=adapter_id,
        tenant_id=tenant_id,
        name=name,
        status=_status_of(disabled_at, deleted_at),
        latest_version=latest_version,
        aliases=targets,
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
