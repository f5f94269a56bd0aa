"""A new epoch: what makes a restored database one that revives no key and gives no version number twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.actor import SYSTEM
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.auth.installation import ADMIN_KEY_HASH
from loragate.adapter_store.backup.manifest import Manifest
from loragate.adapter_store.journal import ADMIN_KEY, API_KEY, NUMBERS, TENANT, JournalContent
from loragate.adapter_store.tables.adapters import AdapterRow
from loragate.adapter_store.tables.admin_keys import AdminKeyRow
from loragate.adapter_store.tables.installation import InstallationRow
from loragate.adapter_store.tables.recovery import RestorationRow, SweepHoldRow
from loragate.adapter_store.tables.tenants import ApiKeyRow, TenantRow
from loragate.adapter_store.timestamps import utc_now


@dataclass(frozen=True)
class ValidKey:
    id: str
    tenant: str
    name: str
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True)
class NewEpoch:
    """The result for the operator. `deleted_tenants` were deleted after the backup: they are back, without keys."""

    number: int
    version_floor: int
    revoked: int  # keys that the backup has as valid
    valid_keys: tuple[ValidKey, ...]
    deleted_tenants: tuple[str, ...]
    admin_key_removed: bool


async def begin_epoch(
    session: AsyncSession, manifest: Manifest, journal: JournalContent, *, complete: bool, revoke_all: bool
) -> NewEpoch:
    """Revoke what was revoked since the backup, and start the epoch, whose sweep is held until it is confirmed.

    `complete`: the journal has all that happened since the backup. Needs the operator's writing session.
    """
    now = utc_now()
    ends = _Ends(journal, now, revoke_all)
    revoked = await _end_keys(session, ends)
    removed = await _remove_admin_key(session, manifest, journal)
    floor = await _version_floor(session, manifest, journal, complete, now)
    await session.execute(update(AdapterRow).where(AdapterRow.last_version < floor).values(last_version=floor))
    last = await session.scalar(select(func.max(RestorationRow.epoch))) or 0
    number = max(last, journal.epoch) + 1
    await session.execute(
        insert(RestorationRow).values(
            epoch=number,
            backup_id=manifest.id,
            backup_at=manifest.created_at,
            restored_at=now,
            version_floor=floor,
        )
    )
    await session.execute(delete(SweepHoldRow))
    facts = {"backup": manifest.id, "backup_at": manifest.created_at, "epoch": number, "revoked_keys": revoked}
    await AuditLog(session, SYSTEM).record("installation.restore", "installation:database", after=facts)
    return NewEpoch(
        number=number,
        version_floor=floor,
        revoked=revoked,
        valid_keys=tuple(await _valid_keys(session, now)),
        deleted_tenants=tuple(await _deleted_tenants(session, journal)),
        admin_key_removed=removed,
    )


@dataclass(frozen=True)
class _Ends:
    journal: JournalContent
    now: datetime
    revoke_all: bool

    def of_admin_key(self, key: AdminKeyRow) -> datetime | None:
        return self.journal.ends[ADMIN_KEY].get(key.id)

    def of_key(self, key: ApiKeyRow) -> datetime | None:
        """Return when the key ended, or will end; None if nothing is known to have ended it."""
        general = self.journal.ends[TENANT].get(key.tenant_id), self.journal.all_keys_ended
        ends = [moment for moment in general if moment is not None and key.created_at <= moment]
        own = self.journal.ends[API_KEY].get(key.id)
        ends += [] if own is None else [own]
        return min([*ends, self.now]) if self.revoke_all else min(ends, default=None)


async def _end_keys(session: AsyncSession, ends: _Ends) -> int:
    """Apply the ends; return the number of keys that were revoked."""
    revoked = 0
    for key in await session.scalars(select(ApiKeyRow).where(ApiKeyRow.revoked_at.is_(None))):
        revoked += await _end_key(session, key, ends.of_key(key), ends.now)
    for admin in await session.scalars(select(AdminKeyRow).where(AdminKeyRow.revoked_at.is_(None))):
        revoked += await _end_key(session, admin, ends.of_admin_key(admin), ends.now)
    return revoked


async def _end_key(session: AsyncSession, key: ApiKeyRow | AdminKeyRow, end: datetime | None, now: datetime) -> bool:
    row = type(key)
    if end is not None and end <= now:
        await session.execute(update(row).where(row.id == key.id).values(revoked_at=end))
        return True
    if end is not None and (key.expires_at is None or end < key.expires_at):
        await session.execute(update(row).where(row.id == key.id).values(expires_at=end))
    return False


async def _remove_admin_key(session: AsyncSession, manifest: Manifest, journal: JournalContent) -> bool:
    """Remove the installation's admin key if it was replaced since: the next start sets or creates one."""
    replaced = journal.admin_key_replaced
    if replaced is None or replaced <= manifest.created_at:
        return False
    await session.execute(delete(InstallationRow).where(InstallationRow.key == ADMIN_KEY_HASH))
    return True


async def _version_floor(
    session: AsyncSession, manifest: Manifest, journal: JournalContent, complete: bool, now: datetime
) -> int:
    """Return a number that no version has ever had, nor any above it.

    Without the journal, a thousand numbers are left out for each hour since the backup.
    """
    given = await session.scalar(select(func.max(AdapterRow.last_version))) or 0
    before = await session.scalar(select(func.max(RestorationRow.version_floor))) or 0
    floor = max(journal.numbers, (max(given, before) // NUMBERS + 1) * NUMBERS)
    if not complete:
        hours = max(timedelta(0), now - manifest.created_at) // timedelta(hours=1)
        floor += NUMBERS * (hours + 1)
    return floor


async def _valid_keys(session: AsyncSession, now: datetime) -> Sequence[ValidKey]:
    row = ApiKeyRow
    columns = row.id, TenantRow.name.label("tenant"), row.name, row.created_at, row.last_used_at
    query = select(*columns).join(TenantRow, TenantRow.id == row.tenant_id).where(row.revoked_at.is_(None))
    query = query.where(TenantRow.deleted_at.is_(None), (row.expires_at.is_(None)) | (row.expires_at > now))
    return [ValidKey(*found) for found in await session.execute(query.order_by(TenantRow.name, row.created_at))]


async def _deleted_tenants(session: AsyncSession, journal: JournalContent) -> Sequence[str]:
    query = select(TenantRow.id, TenantRow.name).where(TenantRow.deleted_at.is_(None)).order_by(TenantRow.name)
    return [found.name for found in await session.execute(query) if found.id in journal.ends[TENANT]]
