"""A tenant takes a version out of service, and puts it back, without losing anything."""

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import AdapterVersion, VersionStatus
from loragate.adapter_store.errors import Conflict
from loragate.adapter_store.tables.base import AdapterVersionRow


async def enable_version(session: AsyncSession, version: AdapterVersion, enabled: bool) -> None:
    """Raises Conflict for a quarantined one, which nobody can enable."""
    if version.status is VersionStatus.QUARANTINED:
        raise Conflict(
            f"Version {version.version} of `{version.name}` is quarantined: {version.reason}.",
            code="version_quarantined",
            param="status",
        )
    row = AdapterVersionRow
    here = (row.adapter_id == version.adapter_id, row.version == version.version)
    status = VersionStatus.READY if enabled else VersionStatus.DISABLED
    await session.execute(update(row).where(*here).values(status=status.value))
