"""What a tenant may keep here, held when something is published."""

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.limits import TenantLimits
from loragate.adapter_store.tables import AdapterRow, AdapterVersionRow


async def check_quotas(session: AsyncSession, limits: TenantLimits) -> None:
    """After a publication, within its transaction: its scope's lock lets no other come between. Raises Conflict."""
    if limits.max_adapters is not None:
        living = select(func.count(AdapterRow.id)).where(AdapterRow.deleted_at.is_(None))
        _refuse_above(limits.max_adapters, await session.scalar(living) or 0, "adapters", "max_adapters")
    if limits.max_storage_bytes is not None:
        kept = select(func.sum(AdapterVersionRow.size_bytes)).where(AdapterVersionRow.deleted_at.is_(None))
        used = int(await session.scalar(kept) or 0)
        _refuse_above(limits.max_storage_bytes, used, "bytes of adapters", "max_storage_bytes")


def _refuse_above(limit: int, would_be: int, what: str, name: str) -> None:
    if would_be > limit:
        raise Conflict(
            f"This tenant may keep {limit} {what} ({name}), and this upload would make it {would_be}; "
            "delete something first.",
            code="quota_exceeded",
        )
