"""From the text of a key to who is calling."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.api_keys import scopes_of
from loragate.adapter_store.credentials import (
    MAX_KEY_LENGTH,
    KeyHasher,
    check_admin_key,
    new_admin_key,
    public_id_of,
)
from loragate.adapter_store.database import Database
from loragate.adapter_store.installation import ADMIN_KEY_HASH, read_fact, write_fact
from loragate.adapter_store.principal import AdminPrincipal, Principal, TenantPrincipal
from loragate.adapter_store.tables import ApiKeyRow, TenantRow
from loragate.adapter_store.times import utc_now


class Authenticator:
    def __init__(self, database: Database, hasher: KeyHasher) -> None:
        self._database = database
        self._hasher = hasher

    async def authenticate(self, key: str) -> Principal | None:
        """None for anything that is not, or no longer, a key of this installation."""
        if not key or len(key) > MAX_KEY_LENGTH or not key.isprintable():
            return None
        async with self._database.operator() as session:
            return await self._tenant(session, key) or await self._admin(session, key)

    async def set_admin_key(self, key: str) -> None:
        """Replaces the admin key. Raises Invalid for one that is too short or not printable."""
        hashed = self._hasher.hash(check_admin_key(key))
        async with self._database.operator(write=True) as session:
            await write_fact(session, ADMIN_KEY_HASH, hashed)

    async def ensure_admin_key(self, given: str | None) -> str | None:
        """Sets the given key; without one makes one at the first call ever, and returns it that once."""
        if given is not None:
            await self.set_admin_key(given)
            return None
        async with self._database.operator(write=True) as session:
            if await read_fact(session, ADMIN_KEY_HASH) is not None:
                return None
            key = new_admin_key()
            await write_fact(session, ADMIN_KEY_HASH, self._hasher.hash(key))
        return key

    async def _tenant(self, session: AsyncSession, key: str) -> TenantPrincipal | None:
        public_id = public_id_of(key)
        if public_id is None:
            return None
        query = select(ApiKeyRow, TenantRow).join(TenantRow, TenantRow.id == ApiKeyRow.tenant_id)
        found = (await session.execute(query.where(ApiKeyRow.id == public_id))).one_or_none()
        if found is None:
            return None
        row, tenant = found
        if not self._hasher.matches(key, row.key_hash) or not _is_active(row, tenant):
            return None
        return TenantPrincipal(
            tenant_id=tenant.id,
            tenant_name=tenant.name,
            weight=tenant.weight,
            key_id=row.id,
            scopes=frozenset(scopes_of(row)),
            expires_at=row.expires_at,
        )

    async def _admin(self, session: AsyncSession, key: str) -> AdminPrincipal | None:
        stored = await read_fact(session, ADMIN_KEY_HASH)
        if stored is None or not self._hasher.matches(key, stored):
            return None
        return AdminPrincipal()


def _is_active(key: ApiKeyRow, tenant: TenantRow) -> bool:
    expired = key.expires_at is not None and key.expires_at <= utc_now()
    return not expired and key.revoked_at is None and tenant.deleted_at is None
