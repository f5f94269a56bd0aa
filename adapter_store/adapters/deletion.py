"""Deletion of adapters and versions, and their restoration within the retention period."""

from datetime import datetime

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import VersionStatus
from loragate.adapter_store.adapters.aliases import aliases_pointing_at
from loragate.adapter_store.adapters.route_summary import refresh_summary
from loragate.adapter_store.adapters.versions import find_adapter
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.names import could_be_name, shortened
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow
from loragate.adapter_store.timestamps import rfc3339, utc_now


async def delete_adapter(session: AsyncSession, adapter: AdapterRow) -> None:
    """Delete an adapter and its versions with the same timestamp, which restoration relies on. Aliases are kept."""
    gone = {"deleted_at": utc_now()}
    versions = update(AdapterVersionRow).where(AdapterVersionRow.adapter_id == adapter.id)
    await session.execute(versions.where(AdapterVersionRow.deleted_at.is_(None)).values(**gone))
    await session.execute(update(AdapterRow).where(AdapterRow.id == adapter.id).values(**gone))
    await refresh_summary(session, adapter.id)


async def delete_version(session: AsyncSession, adapter: AdapterRow, version: int) -> None:
    """Delete a version. Raise Conflict while an alias points at it."""
    aliases = await aliases_pointing_at(session, adapter.id, version)
    if aliases:
        named = ", ".join(f"`{alias}`" for alias in aliases)
        raise Conflict(
            f"Version {version} of `{adapter.name}` is a target of {named}; move the alias first.",
            code="version_in_use",
            param="version",
        )
    here = (AdapterVersionRow.adapter_id == adapter.id, AdapterVersionRow.version == version)
    await session.execute(update(AdapterVersionRow).where(*here).values(deleted_at=utc_now()))
    await refresh_summary(session, adapter.id)


async def find_deleted(session: AsyncSession, name: str) -> AdapterRow:
    """Return the deleted adapter that had the name last. Raise NotFound."""
    query = select(AdapterRow).where(
        AdapterRow.name == name, AdapterRow.deleted_at.is_not(None), AdapterRow.published_at.is_not(None)
    )
    latest = query.order_by(AdapterRow.deleted_at.desc(), AdapterRow.id.desc()).limit(1)
    row = (await session.scalars(latest)).one_or_none() if could_be_name(name) else None
    if row is None:
        raise NotFound(f"No adapter named `{shortened(name)}` was deleted.", code="adapter_not_found", param="name")
    return row


async def restore_adapter(session: AsyncSession, adapter: AdapterRow, since: datetime) -> None:
    """Restore an adapter and the versions deleted with it. Raise Conflict if the name is taken or it is too late."""
    if await find_adapter(session, adapter.name) is not None:
        raise Conflict(
            f"Another adapter is named `{adapter.name}` now; delete that one first.",
            code="name_taken",
            param="name",
        )
    _check_time(f"`{adapter.name}`", adapter.deleted_at, since)
    row = AdapterVersionRow
    with_it: tuple[ColumnElement[bool], ...] = (row.adapter_id == adapter.id, row.deleted_at == adapter.deleted_at)
    await session.execute(
        update(row).where(*with_it, row.status != VersionStatus.REJECTED.value).values(deleted_at=None)
    )
    back = {"deleted_at": None, "updated_at": utc_now()}
    await session.execute(update(AdapterRow).where(AdapterRow.id == adapter.id).values(**back))
    await refresh_summary(session, adapter.id)


async def restore_version(
    session: AsyncSession, adapter: AdapterRow, version: int, deleted_at: datetime | None, since: datetime
) -> None:
    """Restore a version. Raise Conflict if it was deleted before `since`."""
    _check_time(f"Version {version} of `{adapter.name}`", deleted_at, since)
    here = (AdapterVersionRow.adapter_id == adapter.id, AdapterVersionRow.version == version)
    await session.execute(update(AdapterVersionRow).where(*here).values(deleted_at=None))
    await refresh_summary(session, adapter.id)


def _check_time(what: str, deleted_at: datetime | None, since: datetime) -> None:
    assert deleted_at is not None
    if deleted_at <= since:
        raise Conflict(
            f"{what} was deleted at {rfc3339(deleted_at)}, which is too long ago: its bytes are no longer kept.",
            code="restore_expired",
        )
