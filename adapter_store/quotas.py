"""What a tenant may keep here, held when something is published or comes back."""

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
    """The session's tenant's."""
    query = select(TenantRow.limits).where(TenantRow.id == tenant_of(session))
    return (await session.execute(query)).scalar_one()


def check_rank(limits: TenantLimits, rank: int) -> None:
    """Raises Conflict."""
    if limits.max_adapter_rank is not None and rank > limits.max_adapter_rank:
        raise Conflict(
            f"This tenant's adapters may have ranks up to {limits.max_adapter_rank} (max_adapter_rank), and this one "
            f"has {rank}.",
            code="quota_exceeded",
        )


async def check_quotas(session: AsyncSession, limits: TenantLimits) -> None:
    """After an addition, within its transaction: its scope's lock lets no other come between. Raises Conflict."""
    await _check_adapters(session, limits)
    await _check_storage(session, limits)


async def check_one_more_adapter(session: AsyncSession, limits: TenantLimits) -> None:
    """Before the long work that makes one. Raises Conflict."""
    await _check_adapters(session, limits, more=1)
    await _check_storage(session, limits)


async def check_storage(session: AsyncSession, more: int = 0) -> None:
    """What is kept already, with `more` bytes. Raises Conflict."""
    await _check_storage(session, await limits_of(session), more)


async def _check_adapters(session: AsyncSession, limits: TenantLimits, more: int = 0) -> None:
    if limits.max_adapters is not None:
        living = select(func.count(AdapterRow.id)).where(AdapterRow.deleted_at.is_(None))
        would_be = (await session.scalar(living) or 0) + more
        _refuse_above(limits.max_adapters, would_be, "adapters", "max_adapters")


async def _check_storage(session: AsyncSession, limits: TenantLimits, more: int = 0) -> None:
    if limits.max_storage_bytes is not None:
        used = more
        for query in _kept():
            used += int(await session.scalar(query) or 0)
        _refuse_above(limits.max_storage_bytes, used, "bytes of adapters and files", "max_storage_bytes")


def _kept() -> tuple[Select[Any], ...]:
    """Adapters, files, and what uploads in parts have announced."""
    version, file, upload, now = AdapterVersionRow, FileRow, FileUploadRow, utc_now()
    return (
        select(func.sum(version.size_bytes)).where(version.deleted_at.is_(None)),
        select(func.sum(file.size_bytes)).where(
            file.deleted_at.is_(None), or_(file.expires_at.is_(None), file.expires_at > now), file.purpose != RUN
        ),
        select(func.sum(upload.size_bytes)).where(upload.status == UploadStatus.PENDING.value, upload.expires_at > now),
    )


def _refuse_above(limit: int, would_be: int, what: str, name: str) -> None:
    if would_be > limit:
        raise Conflict(
            f"This tenant may keep {limit} {what} ({name}), and this would make it {would_be}; delete something first.",
            code="quota_exceeded",
        )
