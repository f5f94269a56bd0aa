"""Conversion of rows of versions, and look-ups that several operations share."""

from collections.abc import Iterable
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Select, exists, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from loragate.adapter_store.adapters.adapter import PUBLISHED, AdapterVersion, VersionStatus
from loragate.adapter_store.adapters.classifier import classifier_of
from loragate.adapter_store.adapters.lineage import Lineage
from loragate.adapter_store.errors import Conflict, NotFound
from loragate.adapter_store.names import could_be_name, could_be_version, is_tuned, shortened
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow, DeferredPublicationRow

VersionSelect = Select[*tuple[Any, ...]]


async def find_adapter(session: AsyncSession, name: str) -> AdapterRow | None:
    """Return the adapter of this name that is not deleted, even if nothing of it is published yet."""
    if not could_be_name(name):
        return None
    query = select(AdapterRow).where(AdapterRow.name == name, AdapterRow.deleted_at.is_(None))
    return (await session.scalars(query)).one_or_none()


async def require_adapter(session: AsyncSession, name: str) -> AdapterRow:
    row = await find_adapter(session, name)
    if row is None or row.published_at is None:
        raise adapter_missing(name)
    return row


def adapter_missing(name: str) -> NotFound:
    """Return the error for a name that the tenant has not published."""
    if is_tuned(name):
        return NotFound(
            f"The adapter `{shortened(name)}` does not exist: names that start with `ft:` are names of models. The "
            "adapter of a fine-tuned model is called `<suffix>-<end of the job's id>`, or `ft-<end of the job's id>`.",
            code="adapter_not_found",
            param="name",
        )
    return NotFound(f"The adapter `{shortened(name)}` does not exist.", code="adapter_not_found", param="name")


async def require_version(
    session: AsyncSession, adapter: AdapterRow, version: int, *, deleted: bool = False
) -> AdapterVersion:
    """Return a published version that is not deleted, or with `deleted` one that is. Raise NotFound."""
    found = None
    if could_be_version(version):
        query = select_versions(adapter.id, deleted=deleted).where(AdapterVersionRow.version == version)
        found = (await session.execute(query)).one_or_none()
    if found is None:
        raise NotFound(
            f"The adapter `{adapter.name}` has no {'deleted ' if deleted else ''}version {version}.",
            code="version_not_found",
            param="version",
        )
    return version_of(adapter.name, found)


def select_versions(
    adapter_id: str, *, statuses: Iterable[VersionStatus] = PUBLISHED, deleted: bool = False
) -> VersionSelect:
    """Return the query for an adapter's versions in these states, newest first."""
    row = AdapterVersionRow
    gone = row.deleted_at.is_not(None) if deleted else row.deleted_at.is_(None)
    return (
        select(*version_columns())
        .where(row.adapter_id == adapter_id, row.status.in_([status.value for status in statuses]), gone)
        .order_by(row.version.desc())
    )


def version_columns() -> tuple[InstrumentedAttribute[Any], ...]:
    """Return the columns that `version_of` reads."""
    row = AdapterVersionRow
    return (
        row.adapter_id,
        row.version,
        row.digest,
        row.status,
        row.rank,
        row.size_bytes,
        row.base_model,
        row.base_digest,
        row.created_at,
        row.deleted_at,
        row.reason,
        row.source,
        row.dataset_digest,
        row.parent_version,
        row.evaluation,
        row.notes,
        row.signer,
        row.classifier,
    )


def select_in_state(adapter_id: str, status: VersionStatus | None) -> VersionSelect:
    """Return the query for the versions in a list filtered by `status`; None selects the published ones."""
    match status:
        case None:
            return select_versions(adapter_id)
        case VersionStatus.DELETED:
            return select_versions(adapter_id, deleted=True)
        case VersionStatus.REJECTED:
            return select_versions(adapter_id, statuses=[status], deleted=True)
        case _:
            return select_versions(adapter_id, statuses=[status])


def version_of(name: str, row: Any) -> AdapterVersion:
    """Return the version in a row of `version_columns`. A rejected version counts as deleted but keeps its status."""
    status = VersionStatus(row.status)
    if row.deleted_at is not None and status is not VersionStatus.REJECTED:
        status = VersionStatus.DELETED
    return AdapterVersion(
        adapter_id=row.adapter_id,
        name=name,
        version=row.version,
        digest=row.digest,
        status=status,
        rank=row.rank,
        size_bytes=row.size_bytes,
        base_model=row.base_model,
        base_digest=row.base_digest,
        created_at=row.created_at,
        deleted_at=row.deleted_at,
        reason=row.reason,
        lineage=_lineage_of(row),
        signer=row.signer,
        classifier=classifier_of(row.classifier),
    )


def _lineage_of(row: Any) -> Lineage:
    return Lineage(
        source=row.source,
        dataset_digest=row.dataset_digest,
        parent_version=row.parent_version,
        evaluation={} if row.evaluation is None else orjson.loads(row.evaluation),
        notes=row.notes,
    )


async def enable_version(session: AsyncSession, version: AdapterVersion, enabled: bool) -> None:
    """Enable or disable a version. Raise Conflict for a quarantined version."""
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


def is_deferred() -> ColumnElement[bool]:
    """Return the condition that an AdapterVersionRow waits for an engine. Needs a tenant's session."""
    row, kept = AdapterVersionRow, DeferredPublicationRow
    same = (kept.tenant_id == row.tenant_id, kept.adapter_id == row.adapter_id, kept.version == row.version)
    return exists(select(kept.version).where(*same)).correlate(row)
