"""Quotas of what a tenant stores, checked when something is published or restored."""

from typing import Any

from sqlalchemy import Select, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.tables.base import AdapterRow, AdapterVersionRow, TenantRow
from loragate.adapter_store.tables.files import RUN, FileRow, FileUploadRow, UploadStatus
from loragate.adapter_store.timestamps import utc_now


async def limits_of(session: AsyncSession) -> TenantLimits:
    """Return the limits of the session's tenant."""
    query = select(TenantRow.limits).where(TenantRow.id == tenant_of(session))
    return (await session.execute(query)).scalar_one()


def check_rank(limits: TenantLimits, rank: int) -> None:
    """Raise Conflict if the tenant may not publish adapters of this rank."""
    if limits.max_adapter_rank is not None and rank > limits.max_adapter_rank:
        raise Conflict(
            f"This tenant's adapters may have ranks up to {limits.max_adapter_rank} (max_adapter_rank); this one has "
            f"rank {rank}.",
            code="quota_exceeded",
        )


async def check_quotas(session: AsyncSession, limits: TenantLimits) -> None:
    """Raise Conflict if a quota is exceeded. Call it after an addition, in the same transaction (it has the lock)."""
    await _check_adapters(session, limits)
    await _check_storage(session, limits)


async def check_one_more_adapter(session: AsyncSession, limits: TenantLimits) -> None:
    """Raise Conflict if one more adapter would exceed a quota. Call it before the work that makes one."""
    await _check_adapters(session, limits, more=1)
    await _check_storage(session, limits)


async def check_storage(session: AsyncSession, more: int = 0) -> None:
    """Raise Conflict if the stored bytes and `more` exceed the quota."""
    await _check_storage(session, await limits_of(session), more)


async def _check_adapters(session: AsyncSession, limits: TenantLimits, more: int = 0) -> None:
    if limits.max_adapters is not None:
        living = select(func.count(AdapterRow.id)).where(AdapterRow.deleted_at.is_(None))
        would_be = (await session.scalar(living) or 0) + more
        _require_at_most(limits.max_adapters, would_be, "adapters", "max_adapters")


async def _check_storage(session: AsyncSession, limits: TenantLimits, more: int = 0) -> None:
    if limits.max_storage_bytes is not None:
        used = more
        for query in _stored_bytes():
            used += int(await session.scalar(query) or 0)
        _require_at_most(limits.max_storage_bytes, used, "bytes of adapters and files", "max_storage_bytes")


def _stored_bytes() -> tuple[Select[Any], ...]:
    """Return queries for the bytes of adapters, of files, and of pending uploads as announced."""
    version, file, upload, now = AdapterVersionRow, FileRow, FileUploadRow, utc_now()
    return (
        select(func.sum(version.size_bytes)).where(version.deleted_at.is_(None)),
        select(func.sum(file.size_bytes)).where(
            file.deleted_at.is_(None), or_(file.expires_at.is_(None), file.expires_at > now), file.purpose != RUN
        ),
        select(func.sum(upload.size_bytes)).where(upload.status == UploadStatus.PENDING.value, upload.expires_at > now),
    )


def _require_at_most(limit: int, would_be: int, what: str, name: str) -> None:
    if would_be > limit:
        raise Conflict(
            f"This tenant may store {limit} {what} ({name}), and this would make it {would_be}; "
            "delete something first.",
            code="quota_exceeded",
        )
