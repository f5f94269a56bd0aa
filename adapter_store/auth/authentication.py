"""Authentication: from a key's text to the principal."""

import math
from datetime import datetime

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.actor import SYSTEM
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.auth.api_keys import scopes_of
from loragate.adapter_store.auth.credentials import (
    KeyFormat,
    KeyHasher,
    Plausibility,
    check_admin_key,
    is_credential,
    new_admin_key,
    public_id_of,
)
from loragate.adapter_store.auth.installation import ADMIN_KEY_HASH, ADMIN_KEY_SECRET, read_fact, write_fact
from loragate.adapter_store.auth.principal import AdminPrincipal, Authentication, TenantPrincipal
from loragate.adapter_store.auth.rehashing import Rehashing
from loragate.adapter_store.database.clock import database_now
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.tables.admin_keys import AdminKeyRow
from loragate.adapter_store.tables.tenants import ApiKeyRow, TenantRow
from loragate.adapter_store.timestamps import SteadyTime


class Authenticator:
    """Checks keys against the database."""

    def __init__(
        self, database: Database, key_format: KeyFormat, hasher: KeyHasher, admin_key_hash: bytes | None
    ) -> None:
        self._database = database
        self._format = key_format
        self._hasher = hasher
        self._admin_key_hash = admin_key_hash  # as read last
        self._time = SteadyTime()
        self.rehashing = Rehashing(database, hasher)

    def check(self, key: str) -> Plausibility:
        """Return the result for a key as far as it is known without a query. The admin key counts as checked."""
        known = self._admin_key_hash
        if known is not None and is_credential(key) and self._hasher.matches(key, known):
            return Plausibility.CHECKED
        return self._format.check(key)

    async def authenticate(self, key: str) -> Authentication | None:
        """Return the principal of a key; None if it is not, or no longer, a key of this installation."""
        if not is_credential(key):
            return None
        async with self._database.operator() as session:
            for find in (self._tenant, self._named_admin, self._admin):
                found = await find(session, key)
                if found is not None:
                    return found
        return None

    async def principal_of(self, key_id: str) -> TenantPrincipal | None:
        """Return the principal of a tenant's key, which its holder need not send again. Once the key is not valid, it
        is that of the newest valid key that it was rotated to; None without one."""
        async with self._database.operator() as session:
            tried = [key_id]
            while tried:
                query = _with_tenant().where(ApiKeyRow.id.in_(tried)).order_by(ApiKeyRow.created_at.desc())
                for row, tenant, now in (await session.execute(query)).all():
                    if self._seconds_left(row.expires_at, now) > 0 and not _is_gone(row, tenant):
                        return _principal(row, tenant)
                tried = list(await session.scalars(select(ApiKeyRow.id).where(ApiKeyRow.rotated_from.in_(tried))))
        return None

    async def set_admin_key(self, key: str) -> bool:
        """Replace the admin key; return whether it changed. Raise Invalid if it is too short or not printable."""
        check_admin_key(key)
        async with self._database.operator(write=True) as session:
            stored = await read_fact(session, ADMIN_KEY_HASH)
            if stored is None or not self._hasher.matches(key, stored):
                await self._write_admin_key(session, key)
                return True
        self.rehashing.add_admin_key(key, stored)
        await self.rehashing.write()
        return False

    async def ensure_admin_key(self) -> str | None:
        """Create an admin key unless there is one, and return it only then."""
        async with self._database.operator(write=True) as session:
            if await read_fact(session, ADMIN_KEY_HASH) is not None:
                return None
            key = new_admin_key()
            await self._write_admin_key(session, key)
        return key

    async def _write_admin_key(self, session: AsyncSession, key: str) -> None:
        await write_fact(session, ADMIN_KEY_HASH, self._hasher.hash(key))
        await write_fact(session, ADMIN_KEY_SECRET, self._hasher.primary_id.encode())
        await AuditLog(session, SYSTEM).record("admin_key.set", "installation:admin_key")

    async def _tenant(self, session: AsyncSession, key: str) -> Authentication | None:
        public_id = public_id_of(key)
        if public_id is None:
            return None
        found = (await session.execute(_with_tenant().where(ApiKeyRow.id == public_id))).one_or_none()
        if found is None:
            return None
        row, tenant, now = found
        seconds_left = self._seconds_left(row.expires_at, now)
        if not self._hasher.matches(key, row.key_hash, row.secret_id) or seconds_left <= 0 or _is_gone(row, tenant):
            return None
        self.rehashing.add(row, key)
        return Authentication(_principal(row, tenant), seconds_left)

    async def _named_admin(self, session: AsyncSession, key: str) -> Authentication | None:
        public_id = public_id_of(key)
        query = select(AdminKeyRow, database_now()).where(AdminKeyRow.id == public_id, AdminKeyRow.revoked_at.is_(None))
        found = None if public_id is None else (await session.execute(query)).one_or_none()
        if found is None:
            return None
        row, now = found
        seconds_left = self._seconds_left(row.expires_at, now)
        if not self._hasher.matches(key, row.key_hash, row.secret_id) or seconds_left <= 0:
            return None
        self.rehashing.add(row, key)
        return Authentication(AdminPrincipal(key_id=row.id), seconds_left)

    def _seconds_left(self, expires_at: datetime | None, now: datetime) -> float:
        """Return the time until expiry. A database's clock that is set back revives no expired key."""
        steady = self._time.now(now.timestamp())
        return math.inf if expires_at is None else expires_at.timestamp() - steady

    async def _admin(self, session: AsyncSession, key: str) -> Authentication | None:
        stored = self._admin_key_hash = await read_fact(session, ADMIN_KEY_HASH)
        if stored is None or not self._hasher.matches(key, stored):
            return None
        self.rehashing.add_admin_key(key, stored)
        return Authentication(AdminPrincipal(), math.inf)


def _with_tenant() -> Select[ApiKeyRow, TenantRow, datetime]:
    """Select keys with their tenants and the current time."""
    return select(ApiKeyRow, TenantRow, database_now()).join(TenantRow, TenantRow.id == ApiKeyRow.tenant_id)


def _principal(key: ApiKeyRow, tenant: TenantRow) -> TenantPrincipal:
    return TenantPrincipal(
        tenant_id=tenant.id,
        tenant_name=tenant.name,
        weight=tenant.weight,
        key_id=key.id,
        scopes=frozenset(scopes_of(key)),
        limits=tenant.limits,
        key_limits=key.limits,
        store_responses_by_default=tenant.store_responses_by_default,
    )


def _is_gone(key: ApiKeyRow, tenant: TenantRow) -> bool:
    return key.revoked_at is not None or tenant.deleted_at is not None
