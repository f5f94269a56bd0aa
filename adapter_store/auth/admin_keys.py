"""Named admin keys: one for each operator or program, so that each can expire or be revoked by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.log import AuditLog, facts_of
from loragate.adapter_store.auth.api_keys import check_expiry, record_use
from loragate.adapter_store.auth.credentials import KeyFormat, KeyHasher
from loragate.adapter_store.database.keyset import newest_first
from loragate.adapter_store.database.page import DEFAULT_LIMIT, Page
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.names import check_label, could_be_id
from loragate.adapter_store.tables.admin_keys import AdminKeyRow
from loragate.adapter_store.timestamps import utc_now


@dataclass(frozen=True)
class AdminKey:
    """A stored admin key, without its secret. `id` is the public part of `lg-<id>-<secret>`."""

    id: str
    name: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None  # up to a minute late
    created_at: datetime


@dataclass(frozen=True)
class NewAdminKey:
    """A new admin key with its whole text, which is known only now."""

    key: AdminKey
    secret: str = field(repr=False)


class AdminKeyRepository:
    """Part of an operator's AdminScope."""

    def __init__(self, session: AsyncSession, key_format: KeyFormat, hasher: KeyHasher, audit: AuditLog) -> None:
        self._session = session
        self._format = key_format
        self._hasher = hasher
        self._audit = audit

    async def create(self, name: str, *, expires_at: datetime | None = None) -> NewAdminKey:
        """Create a key; only this call returns its whole text. Raise Invalid."""
        check_label(name)
        check_expiry(expires_at)
        text, now = self._format.new_key(), utc_now()
        await self._session.execute(
            insert(AdminKeyRow).values(
                id=text.public_id,
                name=name,
                key_hash=self._hasher.hash(text.whole),
                secret_id=self._hasher.primary_id,
                expires_at=expires_at,
                created_at=now,
            )
        )
        key = await self.get(text.public_id)
        await self._audit.record("admin_key.create", _target(key.id), after=facts_of(key))
        return NewAdminKey(key, text.whole)

    async def get(self, key_id: str) -> AdminKey:
        """Return a key. Raise NotFound."""
        query = select(AdminKeyRow).where(AdminKeyRow.id == key_id)
        row = (await self._session.scalars(query)).one_or_none() if could_be_id(key_id) else None
        if row is None:
            raise NotFound("The admin key does not exist.", code="key_not_found", param="key_id")
        return _key_of(row)

    async def list(self, *, after: str | None = None, limit: int = DEFAULT_LIMIT) -> Page[AdminKey]:
        """Return keys, newest first, including revoked ones; `after` is the id of the last one seen."""
        page = await newest_first(self._session, AdminKeyRow, after=after, limit=limit)
        return Page(tuple(_key_of(row) for row in page), page.has_more)

    async def revoke(self, key_id: str) -> AdminKey:
        """Revoke a key, with immediate effect. Revoking it again changes nothing."""
        key = await self.get(key_id)
        if key.revoked_at is not None:
            return key
        changed = update(AdminKeyRow).where(AdminKeyRow.id == key_id).values(revoked_at=utc_now())
        await self._session.execute(changed)
        revoked = await self.get(key_id)
        await self._audit.record_change("admin_key.revoke", _target(key_id), "", key, revoked)
        return revoked

    async def record_use(self, last_used: Mapping[str, datetime]) -> None:
        """Record when keys were last used, by key id. Later recorded times stay; unknown keys are ignored."""
        await record_use(self._session, AdminKeyRow, last_used)


def _target(key_id: str) -> str:
    return f"admin_key:{key_id}"


def _key_of(row: AdminKeyRow) -> AdminKey:
    return AdminKey(
        id=row.id,
        name=row.name,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
        created_at=row.created_at,
    )
