"""Quotas of what a tenant stores, checked before bytes are written.

Bytes count from before they are written until they are removed, those of all objects: living or deleted adapters
and files, uploads that were cancelled, the runs of jobs, and stored responses and conversations.
"""

from dataclasses import dataclass

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.database.tenant_session import tenant_of
from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow
from loragate.adapter_store.tables.blobs import AdapterBlobRow
from loragate.adapter_store.tables.files import FilePieceRow, FileUploadRow, UploadStatus
from loragate.adapter_store.tables.responses import ConversationRow, StoredResponseRow
from loragate.adapter_store.tables.tenants import TenantRow
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
    await _check_storage(session, limits, more=1)


async def check_new_adapter(session: AsyncSession, limits: TenantLimits) -> None:
    """Raise Conflict if the tenant may not have one more adapter."""
    await _check_adapters(session, limits, more=1)


async def check_storage(session: AsyncSession, limits: TenantLimits | None = None) -> None:
    """Raise Conflict if what is stored, with this transaction's additions, exceeds a quota of the tenant's `limits`,
    which are read if they are not known."""
    await _check_storage(session, limits or await limits_of(session))


async def check_stored_responses(session: AsyncSession, more: int = 0) -> None:
    """Raise Conflict if the tenant stores more responses and conversations, with `more` new ones, than it may."""
    most = (await limits_of(session)).max_stored_responses
    if most is None:
        return
    counts = (select(func.count(StoredResponseRow.id)), select(func.count(ConversationRow.id)))
    would_be = sum([await session.scalar(query) or 0 for query in counts]) + more
    if would_be > most:
        raise Conflict(
            f"This tenant may store {most} responses and conversations (max_stored_responses), and this would make it "
            f"{would_be}; delete some first.",
            code="quota_exceeded",
            param="store",
        )


@dataclass(frozen=True, slots=True)
class Room:
    """The bytes that a tenant may store: `left` of at `most`. None: any number."""

    left: int | None = None
    most: int | None = None


async def room_of(session: AsyncSession) -> Room:
    """Return what the session's tenant may store. Raise Conflict if it may store no more objects."""
    limits = await limits_of(session)
    if limits.max_objects is not None:
        _require_at_most(limits.max_objects, await _objects(session) + 1, "objects", "max_objects")
    if limits.max_storage_bytes is None:
        return Room()
    return Room(max(0, limits.max_storage_bytes - await _bytes(session)), limits.max_storage_bytes)


async def _check_adapters(session: AsyncSession, limits: TenantLimits, more: int = 0) -> None:
    if limits.max_adapters is not None:
        living = select(func.count(AdapterRow.id)).where(AdapterRow.deleted_at.is_(None))
        would_be = (await session.scalar(living) or 0) + more
        _require_at_most(limits.max_adapters, would_be, "adapters", "max_adapters")


async def _check_storage(session: AsyncSession, limits: TenantLimits, more: int = 0) -> None:
    if limits.max_storage_bytes is not None:
        used = await _bytes(session) + more
        _require_at_most(limits.max_storage_bytes, used, "bytes of adapters, files and responses", "max_storage_bytes")
    if limits.max_objects is not None:
        _require_at_most(limits.max_objects, await _objects(session) + more, "objects", "max_objects")


async def _bytes(session: AsyncSession) -> int:
    """Return the bytes that exist, or that are being written, and those that pending uploads have announced."""
    used = 0
    for stored in (AdapterBlobRow, FilePieceRow, StoredResponseRow, ConversationRow):
        used += int(await session.scalar(select(func.sum(stored.size_bytes))) or 0)
    upload, piece = FileUploadRow, FilePieceRow
    pending = (
        select(upload.size_bytes, func.sum(piece.size_bytes).label("sent"))
        .outerjoin(piece, and_(piece.tenant_id == upload.tenant_id, piece.upload_id == upload.id))
        .where(upload.status == UploadStatus.PENDING.value, upload.expires_at > utc_now())
        .group_by(upload.id, upload.size_bytes)
    )
    for announced, sent in await session.execute(pending):
        used += max(0, announced - int(sent or 0))
    return used


async def _objects(session: AsyncSession) -> int:
    """Return the number of stored objects: versions of adapters, adapters' bytes, and pieces of files."""
    versions = select(func.count(AdapterVersionRow.version)).where(AdapterVersionRow.deleted_at.is_(None))
    counts = (versions, select(func.count(AdapterBlobRow.digest)), select(func.count(FilePieceRow.id)))
    found = (await session.execute(select(*(query.scalar_subquery() for query in counts)))).one()
    return sum(found)


def _require_at_most(limit: int, would_be: int, what: str, name: str) -> None:
    if would_be > limit:
        raise quota_exceeded(limit, would_be, what, name)


def quota_exceeded(limit: int, would_be: int, what: str, name: str) -> Conflict:
    return Conflict(
        f"This tenant may store {limit} {what} ({name}), and this would make it {would_be}; delete something first. "
        "What is deleted counts until a sweep has removed its bytes: those of files after an hour, those of adapters "
        "when they can no longer be restored.",
        code="quota_exceeded",
    )
