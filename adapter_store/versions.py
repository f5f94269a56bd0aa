"""Rows of adapters and their versions as nouns, and the look-ups that several actions share."""

from datetime import datetime

from sqlalchemy import Row, Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapter import AdapterVersion, VersionStatus
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.names import could_be_name, could_be_version
from loragate.adapter_store.tables import AdapterRow, AdapterVersionRow

VersionSelect = Select[str, int, str, str, int, int, str, str, datetime]
VersionRow = Row[str, int, str, str, int, int, str, str, datetime]
_ECHOED = 100  # characters of an unknown name


async def find_adapter(session: AsyncSession, name: str) -> AdapterRow | None:
    """The living adapter of this name."""
    if not could_be_name(name):
        return None
    query = select(AdapterRow).where(AdapterRow.name == name, AdapterRow.deleted_at.is_(None))
    return (await session.scalars(query)).one_or_none()


async def require_adapter(session: AsyncSession, name: str) -> AdapterRow:
    row = await find_adapter(session, name)
    if row is None:
        raise NotFound(f"The adapter `{name[:_ECHOED]}` does not exist.", code="adapter_not_found", param="name")
    return row


async def require_version(session: AsyncSession, adapter: AdapterRow, version: int) -> AdapterVersion:
    found = None
    if could_be_version(version):
        query = select_versions(adapter.id).where(AdapterVersionRow.version == version)
        found = (await session.execute(query)).one_or_none()
    if found is None:
        raise NotFound(
            f"The adapter `{adapter.name}` has no version {version}.",
            code="version_not_found",
            param="version",
        )
    return version_of(adapter.name, found)


def select_versions(adapter_id: str) -> VersionSelect:
    """The adapter's living versions, newest first, without their configs."""
    row = AdapterVersionRow
    return (
        select(
            row.adapter_id,
            row.version,
            row.digest,
            row.status,
            row.rank,
            row.size_bytes,
            row.base_model,
            row.base_digest,
            row.created_at,
        )
        .where(row.adapter_id == adapter_id, row.deleted_at.is_(None))
        .order_by(row.version.desc())
    )


def version_of(name: str, row: VersionRow) -> AdapterVersion:
    columns = row._asdict()
    return AdapterVersion(name=name, **{**columns, "status": VersionStatus(columns["status"])})
