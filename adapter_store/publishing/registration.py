"""Registration: a staged adapter becomes a version, registered in one short transaction, ready or rejected in another.

Between the two the engine tries it. The version is invisible then, but has its number, counts towards the quotas, and
protects its bytes from the sweep. The sweep rejects versions that a crash left in between, unless they wait for an
engine (loragate.adapter_store.publishing.deferred).
"""

from collections.abc import Sequence
from datetime import datetime

import orjson
from sqlalchemy import ColumnElement, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.adapters.adapter import AdapterVersion, VersionStatus
from loragate.adapter_store.adapters.classifier import stored
from loragate.adapter_store.adapters.description import EMPTY_DESCRIPTION
from loragate.adapter_store.adapters.lineage import Lineage
from loragate.adapter_store.adapters.search_text import search_text
from loragate.adapter_store.adapters.versions import find_adapter, is_deferred, version_columns, version_of
from loragate.adapter_store.database.upsert import upsert
from loragate.adapter_store.errors import Conflict, Invalid
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.publishing.staging import StagedAdapter
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow
from loragate.adapter_store.tables.blobs import AdapterBlobRow
from loragate.adapter_store.tables.recovery import RestorationRow
from loragate.adapter_store.timestamps import utc_now

CUT_OFF = "its publication was interrupted"


async def register(
    session: AsyncSession, name: str, staged: StagedAdapter, lineage: Lineage, signer: str | None = None
) -> AdapterVersion:
    """Give the adapter its next version number, which is unique because of the scope's lock."""
    adapter_id, last_version = await _find_or_add(session, name)
    if lineage.parent_version is not None and lineage.parent_version > last_version:
        raise Invalid(
            f"`parent_version` is {lineage.parent_version}, but `{name}` has no such version.", param="parent_version"
        )
    registered = AdapterVersion(
        adapter_id=adapter_id,
        name=name,
        version=last_version + 1,
        digest=staged.digest,
        status=VersionStatus.VERIFYING,
        rank=staged.rank,
        size_bytes=staged.size_bytes,
        base_model=staged.base_model,
        base_digest=staged.base_digest,
        created_at=utc_now(),
        lineage=lineage,
        signer=signer,
        classifier=staged.classifier,
    )
    numbered = update(AdapterRow).where(AdapterRow.id == adapter_id)
    await session.execute(numbered.values(last_version=registered.version))
    await _add_version(session, registered)
    return registered


async def record_blob(session: AsyncSession, digest: str, size: int) -> None:
    """Record the bytes of an adapter that are about to be stored, so that they count; `size` is that of both files."""
    row, now = AdapterBlobRow, utc_now()
    add = upsert(session, row).values(digest=digest, size_bytes=size, created_at=now)
    key = [column.name for column in row.__table__.primary_key]
    await session.execute(add.on_conflict_do_update(index_elements=key, set_={"created_at": now}))


async def is_recorded(session: AsyncSession, digest: str) -> bool:
    """Return whether the bytes of an adapter are recorded: no sweep has removed them."""
    found = select(AdapterBlobRow.digest).where(AdapterBlobRow.digest == digest)
    return (await session.execute(found)).one_or_none() is not None


async def make_ready(session: AsyncSession, version: AdapterVersion) -> None:
    """Make a version visible on commit. Raise Conflict if it was deleted or rejected meanwhile."""
    if not await _leave_verifying(session, version, status=VersionStatus.READY.value):
        raise Conflict(
            f"`{version.name}` was deleted while its version {version.version} was being checked.",
            code="adapter_deleted",
        )
    now = utc_now()
    published_at = func.coalesce(AdapterRow.published_at, now)
    here = AdapterRow.id == version.adapter_id
    await session.execute(update(AdapterRow).where(here).values(published_at=published_at, updated_at=now))


async def reject(session: AsyncSession, version: AdapterVersion, reason: str) -> None:
    """Reject a version: its number stays used, the sweep removes its bytes, and an otherwise unused name is free."""
    now = utc_now()
    rejected = VersionStatus.REJECTED.value
    if await _leave_verifying(session, version, status=rejected, reason=reason, deleted_at=now):
        row = AdapterVersionRow
        others = select(row.version).where(row.adapter_id == version.adapter_id, row.deleted_at.is_(None)).exists()
        unborn = (AdapterRow.id == version.adapter_id, AdapterRow.published_at.is_(None), ~others)
        await session.execute(update(AdapterRow).where(*unborn).values(deleted_at=now))


async def abandoned(session: AsyncSession, before: datetime) -> Sequence[AdapterVersion]:
    """Return versions that have been verifying since before `before` and do not wait for an engine."""
    row, adapter = AdapterVersionRow, AdapterRow
    query = (
        select(adapter.name, *version_columns())
        .join(adapter, adapter.id == row.adapter_id)
        .where(row.status == VersionStatus.VERIFYING.value, row.deleted_at.is_(None), row.created_at < before)
        .where(~is_deferred())
    )
    return [version_of(found.name, found) for found in await session.execute(query)]


async def _leave_verifying(session: AsyncSession, version: AdapterVersion, **values: object) -> bool:
    row = AdapterVersionRow
    here: Sequence[ColumnElement[bool]] = (
        row.adapter_id == version.adapter_id,
        row.version == version.version,
        row.status == VersionStatus.VERIFYING.value,
        row.deleted_at.is_(None),
    )
    left = await session.execute(update(row).where(*here).values(**values).returning(row.version))
    return left.scalar_one_or_none() is not None


async def _find_or_add(session: AsyncSession, name: str) -> tuple[str, int]:
    """Return the adapter's id and its last version number."""
    adapter = await find_adapter(session, name)
    if adapter is not None:
        return adapter.id, adapter.last_version
    adapter_id, now, floor = new_id("ad"), utc_now(), await _version_floor(session)
    await session.execute(
        insert(AdapterRow).values(
            id=adapter_id,
            name=name,
            search_text=search_text(name, EMPTY_DESCRIPTION),
            last_version=floor,
            created_at=now,
            updated_at=now,
        )
    )
    return adapter_id, floor


async def _version_floor(session: AsyncSession) -> int:
    """Return the number below which a new adapter's versions do not start: before the last restoration, another adapter
    of this name may have had them."""
    return (await session.scalar(select(func.max(RestorationRow.version_floor)))) or 0


async def _add_version(session: AsyncSession, version: AdapterVersion) -> None:
    lineage = version.lineage
    await session.execute(
        insert(AdapterVersionRow).values(
            adapter_id=version.adapter_id,
            version=version.version,
            digest=version.digest,
            status=version.status.value,
            rank=version.rank,
            size_bytes=version.size_bytes,
            config=b"",
            base_model=version.base_model,
            base_digest=version.base_digest,
            source=lineage.source,
            dataset_digest=lineage.dataset_digest,
            parent_version=lineage.parent_version,
            evaluation=orjson.dumps(dict(lineage.evaluation)).decode() if lineage.evaluation else None,
            notes=lineage.notes,
            signer=version.signer,
            classifier=stored(version.classifier),
            created_at=version.created_at,
        )
    )
